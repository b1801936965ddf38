-- NOTE_RUN id firing outcome job said -> 1 / 0: that run is not claimed.
local id, firing, outcome, j, said = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local k = P .. 'schedule:' .. id
local known = call('HMGET', k, 'firing', 'next', 'name', 'paused')
if not known[3] or known[1] ~= firing then return 0 end
call('HSET', k, 'said', said, 'last', firing)
if j ~= '' then call('HSET', k, 'last_job', j) end
call('HINCRBY', k, outcome, 1)
call('HDEL', k, 'firing')
if known[2] == '0' or known[4] == '1' then
  call('ZREM', P .. 'schedules', id)
else
  call('ZADD', P .. 'schedules', known[2] .. '000', id)
end
return 1
