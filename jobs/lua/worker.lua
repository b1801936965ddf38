-- WORKER worker born ttl name value ... -> 1 | 0 when a later process took this name. A worker's heartbeat.
local worker, born, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local t = now()
local k = P .. 'worker:' .. worker
local known = call('HGET', k, 'born')
if known and known > born then return 0 end
if known ~= born then
  call('DEL', k)
  call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', 'worker', 'worker', worker, 'state', 'joined')
end
call('HSET', k, 'born', born, 'seen', num(t), unpack(ARGV, 4))
call('EXPIRE', k, 86400)
call('ZADD', P .. 'workers', num(t + ttl), worker)
return 1
