-- Purge: removal of deleted and expired jobs.

-- Keys of a job in addition to its hash.
local PARTS = { 'leases', 'lease', 'free', 'retry', 'dead', 'parts', 'acc', 'ev', 'result', 'failures', 'files', 'kept',
  'needs', 'children', 'skips' }

-- Release the artifacts that a program needed, and the artifacts with its output.
local function release_program(id, owner, artifacts, requirements, state)
  -- The job was quarantined as unreadable.
  if requirements and not Jobs.TERMINAL[state] then Programs.count_shape(owner, requirements, -1) end
  local artifact_ids, kept = {}, redis.pcall('HKEYS', job_key(id, 'kept'))
  local leases = redis.pcall('HGETALL', job_key(id, 'lease'))
  for i = 1, leases.err and 0 or #leases, 2 do
    local runner = Leases.runner_of({ lane = string.match(leases[i + 1], '([^:]*)$') })
    call('SREM', PREFIX .. 'leased:' .. runner, id .. '|' .. leases[i])
  end
  local sound, listed = pcall(cjson.decode, artifacts or '[]')
  local is_list = sound and type(listed) == 'table'
  for _, artifact in ipairs(is_list and listed or {}) do artifact_ids[tostring(artifact)] = true end
  for _, artifact in ipairs(kept.err and {} or kept) do artifact_ids[artifact] = true end
  for artifact in pairs(artifact_ids) do Artifacts.release(owner, artifact, 'job:' .. id, now()) end
end

-- Remove a job. Return false if other jobs wait for it.
function Jobs.purge(id)
  local stored = redis.pcall('HMGET', job_key(id), 'idem', 'tenant', 'queue', 'artifacts', 'requirements', 'state',
    'relations')
  if type(stored[7]) == 'string' and stored[7] ~= '' then
    if Dependencies.count_waiting(id) > 0 then return false end
    Dependencies.remove(id)
  end
  local idem, owner = stored[1], stored[2] or 'default'
  if type(idem) == 'string' and idem ~= '' then
    local known = redis.pcall('GET', PREFIX .. 'idem:' .. idem)
    if type(known) == 'string' and string.match(known, '^(.-)|') == id then call('DEL', PREFIX .. 'idem:' .. idem) end
  end
  if type(stored[3]) == 'string' and Programs.is_program_queue(stored[3]) then
    release_program(id, owner, stored[4], stored[5], stored[6])
  end
  local keys = { job_key(id) }
  for i, part in ipairs(PARTS) do keys[i + 1] = job_key(id, part) end
  call('DEL', unpack(keys))
  for state in pairs(Jobs.TERMINAL) do call('ZREM', PREFIX .. 'in:' .. state, id) end
  call('ZREM', PREFIX .. 'jobs', id)
  call('ZREM', PREFIX .. 'expiry', id)
  call('ZREM', PREFIX .. 'recheck', id)
  call('ZREM', PREFIX .. 'deadlines', id)
  if type(stored[3]) == 'string' and Programs.is_program_queue(stored[3]) then Reservations.stop_waiting(id) end
  redis.pcall('SREM', PREFIX .. 'broken', id)
  if stored[3] then call('ZREM', PREFIX .. 'held:' .. stored[3] .. ':' .. owner, id) end
  Caps.update_job_size(owner, id)
  return true
end

-- DELETE id tenant token -> {ok, state} | {conflict, state} | {waited, number of jobs that wait for it} | {missing}
-- Delete a job that has ended. A blocked job is cancelled first.
local function delete(args)
  local id, tenant, token = args[1], args[2], args[3]
  local job = Jobs.find(id)
  if not job and call('SISMEMBER', PREFIX .. 'broken', id) == 1 then
    if not Jobs.purge(id) then return { 'waited', decimal(Dependencies.count_waiting(id)) } end
    Audit.log(now(), tenant, token, 'delete', id, 'broken')
    return { 'ok', 'broken' }
  end
  if not job then return { 'missing' } end
  if not Jobs.TERMINAL[job.state] and job.state ~= 'blocked' then return { 'conflict', job.state } end
  if job.relations ~= '' then
    local waiting = Dependencies.count_waiting(id)
    if waiting > 0 then return { 'waited', decimal(waiting) } end
  end
  if job.state == 'blocked' then Jobs.set_state(job, 'cancelled', now()) end
  local state = job.state
  job.state = 'deleted'
  Jobs.emit(job, 'deleted')
  Jobs.purge(job.id)
  Audit.log(now(), tenant, token, 'delete', id, state)
  return { 'ok', state }
end

register({
  { 'delete', delete, 'allow-oom' },
})
