-- NOTE_RUN id firing outcome job said -> 1 / 0: that run is not claimed, and none was asked for by hand (firing 0).
local id, firing, outcome, j, said = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local k, t = P .. 'schedule:' .. id, now()
local known = call('HMGET', k, 'firing', 'next', 'name', 'paused')
if not known[3] or (firing ~= '0' and known[1] ~= firing) then return 0 end
call('HSET', k, 'said', said, 'last', firing ~= '0' and firing or num(math.floor(t / 1000)))
if j ~= '' then call('HSET', k, 'last_job', j) end
call('HINCRBY', k, outcome, 1)
if firing == '0' then return 1 end
call('HDEL', k, 'firing')
if known[2] == '0' or known[4] == '1' then
  call('ZREM', P .. 'schedules', id)
else
  call('ZADD', P .. 'schedules', known[2] .. '000', id)
end
return 1
