-- FOLD id digest parts accumulator -> 1 | 0. Swaps the accumulator in for the one and the parts that were read, at least one part.
local id, seen, parts, accumulator = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
-- Who names more parts than there are has read none: of a job without any, everybody knows the digest.
if parts < 1 or call('LLEN', key(id, 'parts')) < parts or digest(id, parts) ~= seen then return 0 end
call('LTRIM', key(id, 'parts'), num(parts), -1)
call('SET', key(id, 'acc'), accumulator)
call('HINCRBY', key(id), 'accv', 1) -- for workers of an earlier release, which compare it
return 1
