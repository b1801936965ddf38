-- END_PARTS tenant sha objects verified -> 1 / 0: the parts are not these any more. The parts become a file, or are no file's
-- any more where they were not verified.
local of, sha, objects, t = ARGV[1], ARGV[2], ARGV[3], now()
local place = P .. 'parts:' .. of .. ':' .. sha
local size = call('HGET', place, 'size')
if not size then return 0 end
local number = 0
for object in string.gmatch(objects, '[^,]+') do
  if call('HGET', place, num(number)) ~= object then return 0 end
  number = number + 1
end
if call('HLEN', place) ~= number + 1 then return 0 end
call('DEL', place)
call('ZREM', P .. 'uploads', of .. '/' .. sha)
count_files(of, 'loose', -1, -tonumber(size))
if ARGV[4] == '1' and not is_stored(of, sha) then add_file(of, sha, size, objects, t) else disown(of, objects, t) end
return 1
