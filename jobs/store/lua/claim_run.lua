-- CLAIM_RUN id next firing following missed -> 1 / 0: it was paused, deleted, or moved on by somebody else. firing: the run
-- that is claimed, 0: none; it stays due until NOTE_RUN. following: 0: it never runs again.
local id, firing, following = ARGV[1], ARGV[3], ARGV[4]
local k = P .. 'schedule:' .. id
local known = call('HMGET', k, 'next', 'firing', 'paused')
if known[1] ~= ARGV[2] or known[2] or known[3] == '1' then return 0 end
call('HSET', k, 'next', following)
if ARGV[5] ~= '0' then call('HINCRBY', k, 'missed', ARGV[5]) end
if firing ~= '0' then
  call('HSET', k, 'firing', firing)
elseif following == '0' then
  call('ZREM', P .. 'schedules', id)
else
  call('ZADD', P .. 'schedules', following .. '000', id)
end
return 1
