-- FOLD id version parts accumulator -> 1 | 0. Swaps the accumulator in and trims exactly the parts that were read, at least one.
local id, version, parts, accumulator = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if parts < 1 or call('HGET', key(id), 'accv') ~= version or call('LLEN', key(id, 'parts')) < parts then return 0 end
call('SET', key(id, 'acc'), accumulator)
call('LTRIM', key(id, 'parts'), num(parts), -1)
call('HINCRBY', key(id), 'accv', 1)
return 1
