-- Services. See docs/services.md.

-- ADD_SERVICE id most tenant token field value ... -> {new, id} | {exists, name} | {full, most} | {missing, tenant} |
-- {artifact, id}
local function add_service(args)
  local id, most, fields = args[1], tonumber(args[2]), {}
  for i = 5, #args, 2 do fields[args[i]] = args[i + 1] end
  local tenant = fields.tenant
  local names = PREFIX .. 'services:' .. tenant
  if tenant ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', tenant) then return { 'missing', tenant } end
  local stored = call('HGET', names, fields.name)
  if stored == id then return { 'new', id } end
  if stored then return { 'exists', fields.name } end
  if call('HLEN', names) >= most then return { 'full', decimal(most) } end
  if fields.artifact ~= '' and call('EXISTS', PREFIX .. 'holders:' .. tenant .. ':' .. fields.artifact) == 0 then
    return { 'artifact', fields.artifact }
  end
  local now_ms = now()
  local created = decimal(now_ms)
  call('HSET', PREFIX .. 'service:' .. id, 'created', created, 'asked_at', created, 'needed_at', created,
    'generation', 1, 'next', 1, 'failures', 0, 'retry_at', 0, unpack(args, 5))
  call('HSET', names, fields.name, id)
  call('SADD', PREFIX .. 'services', id)
  if fields.artifact ~= '' then
    call('SADD', PREFIX .. 'holders:' .. tenant .. ':' .. fields.artifact, 'service:' .. id)
  end
  Audit.log(now_ms, args[3], args[4], 'add service', tenant .. '/' .. fields.name, 'ok')
  return { 'new', id }
end

-- CHANGE_SERVICE tenant name what value caller token -> 1 / 0: it does not exist
-- `what` is one of: scale (to a number of replicas, which also starts a stopped service), restart (all replicas, one
-- after the other), stop, or delete (which also frees the name).
local function change_service(args)
  local tenant, name, what, value, now_ms = args[1], args[2], args[3], args[4], now()
  local id = call('HGET', PREFIX .. 'services:' .. tenant, name)
  if not id then return 0 end
  local key = PREFIX .. 'service:' .. id
  if what == 'scale' then
    local asked_at = value == '0' and '0' or decimal(now_ms)
    call('HSET', key, 'replicas', value, 'stopped', 0, 'failures', 0, 'retry_at', 0, 'asked_at', asked_at,
      'needed_at', decimal(now_ms))
  elseif what == 'restart' then
    call('HINCRBY', key, 'generation', 1)
    call('HSET', key, 'stopped', 0, 'failures', 0, 'retry_at', 0, 'asked_at', decimal(now_ms))
  elseif what == 'stop' then
    call('HSET', key, 'stopped', 1)
  else
    call('HSET', key, 'stopped', 1, 'deleted', 1)
    call('HDEL', PREFIX .. 'services:' .. tenant, name)
  end
  Audit.log(now_ms, args[5], args[6], what .. ' service', tenant .. '/' .. name, 'ok')
  return 1
end

-- RESCALE_SERVICE id from to needed_at -> 1 / 0: another caller scaled it meanwhile
-- The leader calls this to scale by load.
local function rescale_service(args)
  local key = PREFIX .. 'service:' .. args[1]
  local stored = call('HMGET', key, 'replicas', 'deleted')
  if stored[1] ~= args[2] or stored[2] == '1' then return 0 end
  call('HSET', key, 'replicas', args[3], 'needed_at', args[4])
  return 1
end

-- NOTE_SERVICE id field value ... -> 1 / 0: it does not exist
local function note_service(args)
  local key = PREFIX .. 'service:' .. args[1]
  if call('EXISTS', key) == 0 then return 0 end
  call('HSET', key, unpack(args, 2))
  return 1
end

-- FORGET_SERVICE id -> 1 / 0: it is not deleted, or has replicas
-- Remove a deleted service and release its artifact.
local function forget_service(args)
  local id, now_ms = args[1], now()
  local key = PREFIX .. 'service:' .. id
  local stored = call('HMGET', key, 'deleted', 'tenant', 'artifact')
  if stored[1] ~= '1' or call('HLEN', PREFIX .. 'servicereplicas:' .. id) > 0 then return 0 end
  call('DEL', key, PREFIX .. 'serviceasked:' .. id)
  call('SREM', PREFIX .. 'services', id)
  if stored[3] and stored[3] ~= '' then Artifacts.release(stored[2], stored[3], 'service:' .. id, now_ms) end
  return 1
end

-- PLACE_REPLICA id number generation -> 1 / 0: it is not the next number, or the service is stopped
-- Add a replica. The leader then submits its job.
local function place_replica(args)
  local id, number, generation = args[1], args[2], args[3]
  local key, now_ms = PREFIX .. 'service:' .. id, now()
  local stored = call('HMGET', key, 'next', 'stopped')
  if stored[1] ~= number or stored[2] == '1' then return 0 end
  call('HSET', key, 'next', decimal(tonumber(number) + 1))
  call('HSET', PREFIX .. 'servicereplicas:' .. id, number, generation .. '|' .. decimal(now_ms) .. '|0')
  return 1
end

-- RETIRE_REPLICA id number -> 1 / 0: it does not exist
-- Stop sending requests to a replica.
local function retire_replica(args)
  local key, now_ms = PREFIX .. 'servicereplicas:' .. args[1], now()
  local generation, since, stopping = string.match(call('HGET', key, args[2]) or '', '^(%d+)|(%d+)|(%d+)$')
  if not generation then return 0 end
  if stopping ~= '0' then return 1 end
  call('HSET', key, args[2], generation .. '|' .. since .. '|' .. decimal(now_ms))
  return 1
end

-- END_REPLICA id number job failures retry_at said -> 1 / 0: it was recorded before
-- Remove a replica whose job has ended. `failures` is the number of consecutive failures, or ''. `retry_at` is the time
-- in milliseconds before which no other replica starts.
local function end_replica(args)
  local id, number, failures = args[1], args[2], args[4]
  if call('HEXISTS', PREFIX .. 'servicereplicas:' .. id, number) == 0 then return 0 end
  call('HDEL', PREFIX .. 'servicereplicas:' .. id, number)
  call('DEL', PREFIX .. 'replica:' .. args[3], PREFIX .. 'replicabusy:' .. args[3])
  if failures == '' then return 1 end
  call('HSET', PREFIX .. 'service:' .. id, 'failures', failures, 'retry_at', args[5], 'said', args[6], 'died', args[3])
  return 1
end

-- REPORT_REPLICA job token ttl field value ... -> 1 / 0: the lease has this token no longer
-- Store the state and address that the holder of the lease reports for its replica.
local function report_replica(args)
  local id, token, ttl, now_ms = args[1], args[2], args[3], now()
  if not call('HGET', job_key(id, 'lease'), token) then return 0 end
  local key, fields = PREFIX .. 'replica:' .. id, {}
  for i = 4, #args, 2 do fields[args[i]] = args[i + 1] end
  local stored = call('HMGET', key, 'state', 'since', 'token')
  local is_same = stored[1] == fields.state and stored[3] == token
  call('HSET', key, 'token', token, 'since', is_same and stored[2] or decimal(now_ms), unpack(args, 4))
  call('PEXPIRE', key, ttl)
  return 1
end

-- LEAD_REPLICA job token service number -> number of the leading replica of this generation; -1: the lease has this
-- token no longer
-- The first caller leads until its job has ended or it accepts no more requests.
local function lead_replica(args)
  local id, token, service, number = args[1], args[2], args[3], args[4]
  if not call('HGET', job_key(id, 'lease'), token) then return -1 end
  local replicas, key = PREFIX .. 'servicereplicas:' .. service, PREFIX .. 'service:' .. service
  local function read_replica(number)
    return string.match(call('HGET', replicas, number) or '', '^(%d+)|%d+|(%d+)$')
  end
  local generation = read_replica(number)
  if not generation then return -1 end
  local field = 'leads:' .. generation
  local leader = call('HGET', key, field)
  if leader and leader ~= number then
    local _, stopping = read_replica(leader)
    local state = call('HGET', job_key('v-' .. service .. '-' .. leader), 'state')
    if stopping == '0' and (state == 'running' or state == 'finishing') then return tonumber(leader) end
  end
  call('HSET', key, field, number)
  call('HDEL', key, 'leads:' .. decimal(tonumber(generation) - 2))
  return tonumber(number)
end

-- ASK_SERVICES coordinator seconds (id requests new) ... -> number of services that exist
-- Record the number of requests that a coordinator has for services, including waiting ones, and whether there are new
-- ones. Only new requests wake a service that was scaled to zero.
local function ask_services(args)
  local coordinator, seconds, now_ms, found = args[1], args[2], now(), 0
  for i = 3, #args, 3 do
    local key, demand = PREFIX .. 'service:' .. args[i], PREFIX .. 'serviceasked:' .. args[i]
    if call('EXISTS', key) == 1 then
      found = found + 1
      local is_new = args[i + 2] == '1'
      if is_new or call('HGET', key, 'asked_at') ~= '0' then call('HSET', key, 'asked_at', decimal(now_ms)) end
      call('HSET', demand, coordinator, args[i + 1])
      call('EXPIRE', demand, seconds)
    end
  end
  return found
end

register({
  { 'add_service', add_service },
  { 'ask_services', ask_services, 'allow-oom' },
  { 'change_service', change_service, 'allow-oom' },
  { 'end_replica', end_replica, 'allow-oom' },
  { 'forget_service', forget_service, 'allow-oom' },
  { 'lead_replica', lead_replica, 'allow-oom' },
  { 'note_service', note_service, 'allow-oom' },
  { 'place_replica', place_replica },
  { 'report_replica', report_replica, 'allow-oom' },
  { 'rescale_service', rescale_service, 'allow-oom' },
  { 'retire_replica', retire_replica, 'allow-oom' },
})
