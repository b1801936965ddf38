-- ADD_PART tenant sha size number object -> new | there | size | gone; {over, most, loose bytes}. ct:parts:{tenant}:{sha}:
-- the size of a file that is being uploaded, and number -> object of each part. size: it began with another size.
-- there: the part or the whole file is stored. A part of a stored file would begin an upload that nobody completes.
local of, sha, size, number, object, t = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], now()
local place = P .. 'parts:' .. of .. ':' .. sha
if is_stored(of, sha) then return { 'there' } end
local begun = call('HGET', place, 'size')
if begun and begun ~= size then return { 'size' } end
local most, loose = most_stored(of), number_at('HGET', P .. 'filesums', of .. '|loose|bytes')
if most and not begun and loose + tonumber(size) > most then return { 'over', num(most), num(loose) } end
if call('HEXISTS', place, number) == 1 then return { 'there' } end
if call('ZREM', P .. 'unowned', of .. '/' .. object) == 0 then return { 'gone' } end
call('HSET', place, 'size', size, number, object)
call('ZADD', P .. 'uploads', num(t + LOOSE_MS), of .. '/' .. sha)
if not begun then count_files(of, 'loose', 1, tonumber(size)) end
return { 'new' }
