-- Repairs: data in Redis that no function has written.
-- A job with invalid data is quarantined. Any other key with invalid data is renamed and counts as empty, so that the
-- call completes all its changes to jobs. From then on, SUBMIT is rejected and names the key, until an operator
-- rebuilds the indexes from the jobs (REINDEX). Other errors mean that Redis rejects commands, for example because its
-- memory is full, and are returned to the caller.

--- Milliseconds for which an unreadable quarantined job and the contents of a broken key are kept.
local KEPT_MS = 604800000

local function contains_any(text, ...)
  for _, part in ipairs({ ... }) do
    if string.find(text, part, 1, true) then return true end
  end
  return false
end

local function is_bad_content(message)
  return contains_any(message, 'WRONGTYPE', 'hash value is not', 'would overflow', 'equal or smaller than the target',
    'exhausted the last')
end

local function is_bad_argument(message)
  return contains_any(message, 'not an integer', 'not a float', 'not a valid float', 'out of range',
    'must be strings or integers')
end

local function note_broken(name)
  if type(redis.pcall('SADD', PREFIX .. 'broken', name)) == 'table' then
    redis.call('DEL', PREFIX .. 'broken')
    redis.call('SADD', PREFIX .. 'broken', name)
  end
end

-- Record a key that contradicts the jobs.
function Repairs.report(key)
  note_broken(key)
  redis.call('SET', PREFIX .. 'damaged', key)
end

local function quarantine_key(key)
  redis.call('RENAME', key, PREFIX .. 'quarantined:' .. key)
  redis.call('PEXPIRE', PREFIX .. 'quarantined:' .. key, KEPT_MS)
  Repairs.report(key)
end

-- Return the error of SUBMIT while a damaged key waits for repair, otherwise nil.
function Repairs.check()
  local key = call('GET', PREFIX .. 'damaged')
  return key and redis.error_reply('DAMAGED ' .. key)
end

-- Handle the error of a command: quarantine its key and call it again, or raise the error.
function Repairs.recover(message, command, key, ...)
  local is_broken = is_bad_content(message) or (command == 'INCR' and is_bad_argument(message))
  local id = string.match(key or '', '^ct:job:([^:]*)')
  if is_broken and id then error({ broken = id, why = message }) end
  if is_broken and not State.is_read_only then quarantine_key(key) end
  State.refused = not is_broken and not is_bad_argument(message)
  return redis.call(command, key, ...)
end

-- Remove a job from all indexes in which workers and SWEEP look for work.
local function remove_from_indexes(id)
  local tenant = Jobs.tenant_of(id)
  for _, queue in ipairs(ALL_QUEUES) do
    if Queues.dequeue(queue, tenant, id) == 1 then Queues.adjust_wakeups(queue) end
    call('ZREM', PREFIX .. 'held:' .. queue .. ':' .. tenant, id)
  end
  for _, index in ipairs(Tenants.are_registered() and { 'admitted:', 'backlog:', 'blocked:' } or {}) do
    call('ZREM', PREFIX .. index .. tenant, id)
  end
  call('ZREM', PREFIX .. 'recheck', id)
  call('ZREM', PREFIX .. 'deadlines', id)
end

-- Fail a job. Return whether the failure could be written.
local function fail_broken(job, why)
  local text = 'the stored job is invalid (' .. why .. '); submit it again'
  job.deferred = 0
  return pcall(function()
    call('HSET', job_key(job.id), 'error', text)
    Jobs.set_state(job, 'failed', now(), 'error', text)
  end)
end

-- Remove a broken job from all work, and fail it if possible, so that it does not stop other jobs. It is purged after a
-- week, or by DELETE.
function Repairs.quarantine(id, why)
  State.broken[id] = true
  if State.is_read_only then return end
  note_broken(id)
  remove_from_indexes(id)
  local job = Jobs.read(id)
  if job and (Jobs.TERMINAL[job.state] or fail_broken(job, why)) then return end
  for state in pairs(Jobs.STATES) do call('ZREM', PREFIX .. 'in:' .. state, id) end
  call('ZADD', PREFIX .. 'expiry', decimal(now() + KEPT_MS), id)
  Dependencies.note_broken(id)
end

-- QUARANTINE id why -> 1
-- Quarantine a job that a reader outside the functions cannot read.
local function quarantine_job(args)
  Repairs.quarantine(args[1], args[2])
  return 1
end

-- READ commands(json) -> their replies
-- Execute read commands atomically, like MULTI, which a full Redis rejects even for reads.
local function read_at_once(args)
  local replies = {}
  for i, command in ipairs(cjson.decode(args[1])) do replies[i] = redis.pcall(unpack(command)) end
  return replies
end

register({
  { 'quarantine', quarantine_job, 'allow-oom' },
  { 'read', read_at_once, 'no-writes' },
})
