-- ADD_FILES tenant (sha size object) ... -> new | there | gone of each; {over, most, loose bytes} and nothing is added.
-- gone: the object was not said to be about to be written, or too long ago. The object of one that is there stays unowned.
local of, t, added, answer = ARGV[1], now(), 0, {}
for i = 2, #ARGV, 3 do
  if not is_stored(of, ARGV[i]) then added = added + tonumber(ARGV[i + 1]) end
end
local most, loose = most_stored(of), number_at('HGET', P .. 'filesums', of .. '|loose|bytes')
if most and loose + added > most then return { 'over', num(most), num(loose) } end
for i = 2, #ARGV, 3 do
  local sha, object, how = ARGV[i], ARGV[i + 2], 'there'
  if not is_stored(of, sha) then
    how = call('ZREM', P .. 'unowned', of .. '/' .. object) == 1 and 'new' or 'gone'
    if how == 'new' then add_file(of, sha, ARGV[i + 1], object, t) end
  end
  answer[#answer + 1] = how
end
return answer
