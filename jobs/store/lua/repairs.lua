-- Repairs: what is broken in Redis stops nobody else. A key of another type, or with contents that no function writes,
-- is put aside and its place is empty; a job of which that is true is quarantined. Other errors are Redis' own
-- refusals, such as for want of memory, and go to the caller.

local function says(text, ...)
  for _, word in ipairs({ ... }) do
    if string.find(text, word) then return true end
  end
  return false
end

local function is_bad_content(err)
  return says(err, 'WRONGTYPE', 'hash value is not', 'would overflow', 'equal or smaller than the target',
    'exhausted the last')
end

local function is_bad_argument(err)
  return says(err, 'not an integer', 'not a float', 'not a valid float', 'out of range', 'must be strings or integers')
end

local function is_index(key)
  return says(key, '^ct:pending:', '^ct:turns:', '^ct:order:', '^ct:admitted:', '^ct:backlog:', '^ct:blocked:',
    '^ct:lacked', '^ct:unfit$', '^ct:shapes', '^ct:deferred', '^ct:in:', '^ct:later$', '^ct:expiry$', '^ct:slots$',
    '^ct:slotjob$', '^ct:jobs$', '^ct:waiting_replicas$',
    '^ct:held:', '^ct:holding:', '^ct:running$', '^ct:load$', '^ct:deadlines$')
end

local function note_broken(name)
  if type(redis.pcall('SADD', PREFIX .. 'broken', name)) == 'table' then
    redis.call('DEL', PREFIX .. 'broken')
    redis.call('SADD', PREFIX .. 'broken', name)
  end
end

-- The counter of jobs goes on above every job that it has numbered.
local function renumber()
  local top = 0
  for _, index in ipairs({ 'jobs', unpack(EVERY_QUEUE) }) do
    local key = index == 'jobs' and PREFIX .. index or PREFIX .. 'pending:' .. index
    local found = redis.pcall('ZREVRANGEBYSCORE', key, '9007199254740992', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    top = math.max(top, tonumber(found[2]) or 0)
  end
  redis.call('SET', PREFIX .. 'seq', string.format('%.0f', top))
end

-- Empties the place of a key. What was there is kept for a week; the leader builds indexes anew.
function Repairs.put_aside(key, command, field)
  if command == 'HINCRBY' and redis.call('TYPE', key).ok == 'hash' then
    redis.call('HDEL', key, field)
  else
    redis.call('RENAME', key, PREFIX .. 'aside:' .. key)
    redis.call('EXPIRE', PREFIX .. 'aside:' .. key, 604800)
  end
  note_broken(key)
  if key == PREFIX .. 'seq' then renumber() end
  if is_index(key) then redis.call('SET', PREFIX .. 'disturbed', 1) end
end

-- Recovers from the error of a command: puts its key aside and calls it again, or fails.
function Repairs.recover(err, command, key, ...)
  local fault = is_bad_content(err) or (command == 'INCR' and is_bad_argument(err))
  local id, part = string.match(key or '', '^ct:job:([^:]*):?(.*)$')
  if fault and part == 'ev' then
    redis.call('DEL', key)
  elseif fault and id then
    error({ broken = id, why = err })
  elseif fault and not State.is_read_only then
    Repairs.put_aside(key, command, ...)
  end
  State.refused = not fault and not is_bad_argument(err)
  return redis.call(command, key, ...)
end

-- Puts a job where nobody looks for work, and fails it if that can still be written: what is wrong with it must not
-- hold up the others. It goes after a week, or by DELETE.
function Repairs.quarantine(id, why)
  State.broken[id] = true
  if State.is_read_only then return end
  note_broken(id)
  for _, queue in ipairs(EVERY_QUEUE) do
    if Queues.step_out(queue, Jobs.tenant_of(id), id) == 1 then Queues.level(queue) end
    call('ZREM', PREFIX .. 'held:' .. queue .. ':' .. Jobs.tenant_of(id), id)
  end
  for _, index in ipairs(Tenants.exist() and { 'admitted:', 'backlog:', 'blocked:' } or {}) do
    call('ZREM', PREFIX .. index .. Jobs.tenant_of(id), id)
  end
  call('ZREM', PREFIX .. 'later', id)
  call('ZREM', PREFIX .. 'deadlines', id)
  call('SREM', PREFIX .. 'running', id)
  local job = Jobs.read(id)
  if job and Jobs.TERMINAL[job.state] then return end
  if job then job.deferred = 0 end -- else numbers are read of which one may be what is broken
  local text = 'what is stored of this job is broken (' .. why .. '); submit it again'
  local failed = job and pcall(function()
    call('HSET', job_key(id), 'error', text)
    Jobs.set_state(job, 'failed', now(), 'error', text)
  end)
  if not failed then
    for state in pairs(Jobs.STATES) do call('ZREM', PREFIX .. 'in:' .. state, id) end
    call('ZADD', PREFIX .. 'expiry', decimal(now() + 604800000), id)
  end
end

-- ASIDE key -> 1 | 0. Puts a key away that is not of a job and holds what it must not.
local function put_key_aside(args)
  if redis.call('EXISTS', args[1]) == 0 or string.find(args[1], '^ct:job:') then return 0 end
  Repairs.put_aside(args[1])
  return 1
end

-- QUARANTINE id why -> 1. What is stored of the job cannot be read outside the scripts.
local function quarantine_job(args)
  Repairs.quarantine(args[1], args[2])
  return 1
end

-- REINDEX id ... -> jobs that are there. The leader, after an index was put aside: what each job says of itself is
-- in every index again. Load and shapes are counted from nothing: the caller
-- has removed them.
local function reindex(args)
  local now_ms = now()
  local holders, lanes = {}, {}
  local slots = call('HGETALL', PREFIX .. 'slotjob')
  for i = 2, #slots, 2 do
    local id, count = string.match(slots[i], '^(.*)|(%d+)$')
    call('ZADD', PREFIX .. 'slots', 'NX', decimal(now_ms), slots[i - 1])
    if id then holders[id], lanes[id] = (holders[id] or 0) + 1, (lanes[id] or 0) + tonumber(count) end
  end

  local function place(job)
    call('ZADD', PREFIX .. 'jobs', decimal(job.seq), job.id)
    for state in pairs(Jobs.STATES) do
      if state ~= job.state then call('ZREM', PREFIX .. 'in:' .. state, job.id) end
    end
    call('ZADD', PREFIX .. 'in:' .. job.state, decimal(job.seq), job.id)
    call(Jobs.ACTIVE[job.state] and 'SADD' or 'SREM', PREFIX .. 'running', job.id)
    if Tenants.exist() then
      Admission.update(job, job.state)
      if job.backlog == 1 then call('ZADD', PREFIX .. 'backlog:' .. job.tenant, 'NX', decimal(job.seq), job.id) end
      if job.deferred == 1 then
        call('ZADD', PREFIX .. 'deferred:' .. job.tenant .. ':' .. job.kind, 'NX', decimal(job.seq), job.id)
      end
    end
    job.holders, job.lanes, job.load = holders[job.id] or 0, lanes[job.id] or 0, 0
    Jobs.set(job, 'holders', decimal(job.holders), 'lanes', decimal(job.lanes), 'load', 0)
    Jobs.account(job)
    Jobs.save(job)
    Jobs.note_holders(job)
    if job.state == 'blocked' then
      Dependencies.count_blocked(job)
    end
    if not Jobs.TERMINAL[job.state] then Programs.count_shape(job.tenant, Programs.requirements_of(job), 1) end
  end

  local count = 0
  for _, id in ipairs(args) do
    local job = Jobs.find(id)
    if job then
      count = count + 1
      place(job)
      if Jobs.TERMINAL[job.state] then
        call('ZADD', PREFIX .. 'expiry', 'NX', decimal(now_ms + job.ttl_ms), id)
      else
        if job.state == 'running' and job.timeout_ms > 0 then
          call('ZADD', PREFIX .. 'deadlines', 'NX', decimal(math.min(now_ms, job.started) + job.timeout_ms), id)
        end
        if job.state == 'running' and job.done == job.total then Jobs.finish_if_whole(job, now_ms) end
        Queues.rest(job, now_ms)
      end
    end
  end
  return count
end

-- READ commands(json) -> their replies. Reads at one moment, as MULTI would; that a full Redis refuses, even of reads.
local function read_at_once(args)
  local replies = {}
  for i, command in ipairs(cjson.decode(args[1])) do replies[i] = redis.pcall(unpack(command)) end
  return replies
end

register({
  { 'aside', put_key_aside, 'allow-oom' },
  { 'quarantine', quarantine_job, 'allow-oom' },
  { 'read', read_at_once, 'no-writes' },
  { 'reindex', reindex, 'allow-oom' },
})
