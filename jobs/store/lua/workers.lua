-- Workers: heartbeats and drains.

-- Return the comma-separated labels of a worker's host. Workers that use the API pass '=' and the labels that the
-- operator assigned to them; other workers report labels in their record.
function Workers.labels_of(api_labels, own_labels)
  return string.match(api_labels or '', '^=(.*)$') or own_labels or ''
end

-- Add an event that a worker joined, left or was lost.
function Workers.emit(worker, state)
  call('XADD', PREFIX .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', 'worker', 'worker', worker, 'state', state)
end

-- End the leases and claims of a runner that stopped or was restarted.
local function expire_all(worker, now_ms)
  local left = PREFIX .. 'leased:' .. worker
  for _, member in ipairs(call('SMEMBERS', left)) do
    local id, token = string.match(member, '^(.-)|(.*)$')
    local job, lease = Leases.revoke(id, token, now_ms)
    if lease then
      call('HINCRBY', job_key(id), 'expired', 1)
      call('HINCRBY', PREFIX .. 'outcomes', 'expired', 1)
      Ranges.expire(job, lease)
      Leases.handle_end(job, now_ms)
    end
  end
  call('DEL', left)
  for _, gpu in ipairs(call('SMEMBERS', PREFIX .. 'claimed:' .. worker)) do
    if call('GET', PREFIX .. 'gpu:' .. gpu) == worker then call('DEL', PREFIX .. 'gpu:' .. gpu) end
  end
  call('DEL', PREFIX .. 'claimed:' .. worker)
end

-- WORKER worker born ttl name value ... -> ok | drain | taken: a process that was started later is alive
-- Record a heartbeat. ttl 0 means that the worker stops.
local function worker(args)
  local worker, born, ttl = args[1], args[2], tonumber(args[3])
  local now_ms = now()
  local key = PREFIX .. 'worker:' .. worker
  local known, lives_until = call('HGET', key, 'born'), call('ZSCORE', PREFIX .. 'workers', worker)
  if known and known > born and lives_until and tonumber(lives_until) > now_ms then return 'taken' end
  -- A coordinator delayed this heartbeat until after the process stopped.
  if ttl > 0 and known == born and not lives_until and call('HGET', key, 'state') == 'stopped' then return 'ok' end

  local is_runner = call('HGET', key, 'device') == 'runner'
  for i = 4, #args, 2 do
    if args[i] == 'device' then is_runner = is_runner or args[i + 1] == 'runner' end
  end
  if is_runner and (known ~= born or ttl == 0) then expire_all(worker, now_ms) end
  if known ~= born then
    local drain = call('HGET', key, 'drain')
    call('DEL', key)
    if drain then call('HSET', key, 'drain', drain) end -- drains apply to the name, not to the process
    Workers.emit(worker, 'joined')
  end
  call('HSET', key, 'born', born, 'seen', decimal(now_ms), 'library', LIBRARY, unpack(args, 4))
  call('EXPIRE', key, '86400')
  call('ZADD', PREFIX .. 'nodes', decimal(now_ms), worker)
  call('ZREMRANGEBYSCORE', PREFIX .. 'nodes', '-inf', decimal(now_ms - DAY_MS))
  if ttl == 0 then
    for _, device in ipairs({ 'cpu', 'gpu', 'runner' }) do call('ZREM', PREFIX .. 'workers:' .. device, worker) end
    if call('ZREM', PREFIX .. 'workers', worker) == 1 then Workers.emit(worker, 'left') end
    return 'ok'
  end
  call('ZADD', PREFIX .. 'workers', decimal(now_ms + ttl), worker)
  local device, state, cordoned = unpack(call('HMGET', key, 'device', 'state', 'cordoned'))
  if state == 'parked' or (device == 'gpu' and (cordoned or '') ~= '') then -- it has no usable device
    call('ZREM', PREFIX .. 'workers:' .. device, worker)
  elseif device then
    call('ZADD', PREFIX .. 'workers:' .. device, decimal(now_ms + ttl), worker)
  end
  return call('HGET', key, 'drain') == '1' and 'drain' or 'ok'
end

-- DRAIN worker on(1|0) tenant token -> {ok} | {missing}
local function drain(args)
  local key = PREFIX .. 'worker:' .. args[1]
  if call('EXISTS', key) == 0 then return { 'missing' } end
  local what, changed = args[2] == '1' and 'drain' or 'undrain'
  call('INCR', PREFIX .. 'drains')
  if what == 'drain' then changed = call('HSET', key, 'drain', '1') else changed = call('HDEL', key, 'drain') end
  call('XADD', PREFIX .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', what, 'worker', args[1])
  if changed == 1 then Audit.log(now(), args[3], args[4], what, args[1], 'ok') end
  return { 'ok' }
end

register({
  { 'drain', drain, 'allow-oom' },
  { 'worker', worker, 'allow-oom' },
})
