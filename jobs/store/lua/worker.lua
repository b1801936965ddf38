-- WORKER worker born ttl name value ... -> ok | drain | taken by a later process that is alive. A heartbeat; ttl 0: it leaves.
local worker, born, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local t = now()
local k = P .. 'worker:' .. worker
local known, lives_until = call('HGET', k, 'born'), call('ZSCORE', P .. 'workers', worker)
if known and known > born and lives_until and tonumber(lives_until) > t then return 'taken' end
-- A heartbeat that a coordinator held up until after the goodbye of its process.
if ttl > 0 and known == born and not lives_until and call('HGET', k, 'state') == 'stopped' then return 'ok' end

even_if_full()
local function tell(state)
  call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', 'worker', 'worker', worker, 'state', state)
end

-- What a runner left that has gone, or runs again under its name: nobody computes it.
local function lapse_all()
  local left = P .. 'leased:' .. worker
  for _, member in ipairs(call('SMEMBERS', left)) do
    local id, token = string.match(member, '^(.-)|(.*)$')
    local j, l = take_back(id, token, t)
    if l then
      call('HINCRBY', key(id), 'expired', 1)
      call('HINCRBY', P .. 'outcomes', 'expired', 1)
      lapse(j, l)
      after_lease(j, t)
    end
  end
  call('DEL', left)
  for _, gpu in ipairs(call('SMEMBERS', P .. 'claimed:' .. worker)) do
    if call('GET', P .. 'gpu:' .. gpu) == worker then call('DEL', P .. 'gpu:' .. gpu) end
  end
  call('DEL', P .. 'claimed:' .. worker)
end

local is_runner = call('HGET', k, 'device') == 'runner'
for i = 4, #ARGV, 2 do
  if ARGV[i] == 'device' then is_runner = is_runner or ARGV[i + 1] == 'runner' end
end
if is_runner and (known ~= born or ttl == 0) then lapse_all() end
if known ~= born then
  local drain = call('HGET', k, 'drain')
  call('DEL', k)
  if drain then call('HSET', k, 'drain', drain) end -- who drained the worker meant the name
  tell('joined')
end
call('HSET', k, 'born', born, 'seen', num(t), unpack(ARGV, 4))
call('EXPIRE', k, 86400)
call('ZADD', P .. 'nodes', num(t), worker)
call('ZREMRANGEBYSCORE', P .. 'nodes', '-inf', num(t - 86400000))
if ttl == 0 then
  for _, device in ipairs({ 'cpu', 'gpu', 'runner' }) do call('ZREM', P .. 'workers:' .. device, worker) end
  if call('ZREM', P .. 'workers', worker) == 1 then tell('left') end
  return 'ok'
end
call('ZADD', P .. 'workers', num(t + ttl), worker)
local device, state, cordoned = unpack(call('HMGET', k, 'device', 'state', 'cordoned'))
if state == 'parked' or (device == 'gpu' and (cordoned or '') ~= '') then -- it has no device that it may use
  call('ZREM', P .. 'workers:' .. device, worker)
elseif device then
  call('ZADD', P .. 'workers:' .. device, num(t + ttl), worker)
end
return call('HGET', k, 'drain') == '1' and 'drain' or 'ok'
