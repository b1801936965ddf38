-- SWEEP: periodic work of the leader, every second. It never reads all jobs.

--- Limits of one call. If one of them was reached, the leader calls again at once.
local SLOTS_AT_ONCE, JOBS_AT_ONCE, PURGES_AT_ONCE = 100, 100, 50
--- Maximum number of deferred jobs that one call resumes, for all tenants: at midnight, each tenant can have some.
local MAX_RESUMED = 1000
--- Minimum and maximum milliseconds until SWEEP checks an expired job again that is still needed.
local PINNED_MS, KEPT_MS = 60000, 3600000
local WORKER_INDEXES = { 'workers', 'workers:cpu', 'workers:gpu', 'workers:runner' }

-- Record that SWEEP ran. After a long absence, leases of programs are kept for a while.
local function note_sweep(now_ms)
  local grace = PREFIX .. 'grace'
  local swept, spared = unpack(call('HMGET', grace, 'swept', 'until'))
  if tonumber(swept or nil) and now_ms - swept > SWEEP_OVERDUE_MS then spared = now_ms + PROGRAM_TTL_MS end
  local till = math.min(tonumber(spared or 0) or 0, now_ms + PROGRAM_TTL_MS)
  call('HSET', grace, 'swept', decimal(now_ms), 'until', decimal(till))
end

-- End expired slots and return their number.
local function end_slots(now_ms)
  cap_scores(PREFIX .. 'slots', now_ms, SLOT_TTL_MS)
  local slots = call('ZRANGEBYSCORE', PREFIX .. 'slots', '-inf', decimal(now_ms), 'LIMIT', 0, SLOTS_AT_ONCE)
  for _, worker in ipairs(slots) do
    Slots.remove(worker)
    Slots.release(worker, now_ms)
  end
  return #slots
end

-- Reclaim a job's expired leases and update its indexes.
local function recheck(job, now_ms)
  if job.state == 'cancelling' or job.state == 'running' or job.state == 'queued' then
    Leases.reclaim(job, now_ms)
    Jobs.settle(job, now_ms)
  end
  Queues.reschedule(job, now_ms)
end

-- Recheck due jobs in ct:recheck and return their number.
local function recheck_due_jobs(now_ms)
  local later = PREFIX .. 'recheck'
  local due = call('ZRANGEBYSCORE', later, '-inf', decimal(now_ms), 'LIMIT', 0, JOBS_AT_ONCE)
  -- Times beyond a lease's time to live are rare, unless the clock was set back.
  local far = call('ZREVRANGEBYSCORE', later, '+inf', '(' .. decimal(now_ms + LEASE_TTL_MS), 'LIMIT', 0, JOBS_AT_ONCE)
  for _, list in ipairs({ due, far }) do
    for _, id in ipairs(list) do
      call('ZREM', later, id)
      local job = Jobs.find(id)
      if job then recheck(job, now_ms) end
    end
  end
  return #due
end

-- Fail jobs that have passed their timeout.
local function fail_late_jobs(now_ms)
  local deadlines = PREFIX .. 'deadlines'
  for _, id in ipairs(call('ZRANGEBYSCORE', deadlines, '-inf', decimal(now_ms), 'LIMIT', 0, JOBS_AT_ONCE)) do
    local job = Jobs.find(id)
    if job then Jobs.settle(job, now_ms) end
    if not job or job.state ~= 'running' then call('ZREM', deadlines, id) end
  end
end

-- Return the cursor at which a scan continues.
local function read_cursor(key)
  local cursor = string.match(call('GET', key) or '', '^%d+$') or '0'
  return #cursor < 20 and cursor or '0'
end

-- Lower expiry times from before the clock was set back, and recheck a job that is in no index.
local function check_active_job(job, now_ms)
  Leases.cap_expiries(job, now_ms)
  local latest = now_ms + job.timeout_ms
  local deadline = job.timeout_ms > 0 and tonumber(call('ZSCORE', PREFIX .. 'deadlines', job.id) or 0) or 0
  if deadline > latest then call('ZADD', PREFIX .. 'deadlines', decimal(latest), job.id) end
  if job.holders > 0 then return end
  local at = tonumber(call('ZSCORE', PREFIX .. 'recheck', job.id) or math.huge) -- jobs in it are due within a minute
  if at <= now_ms + 120000 then return end
  if not call('ZSCORE', PREFIX .. 'pending:' .. job.queue, job.id) then recheck(job, now_ms) end
end

-- Check about 32 jobs of each active state: if the append-only file lost its last lines, some can be in no index.
local function check_active_jobs(now_ms)
  for state in pairs(Jobs.ACTIVE) do
    local key, jobs = PREFIX .. 'sweep:' .. state, PREFIX .. 'in:' .. state
    local scan = call('ZSCAN', jobs, read_cursor(key), 'COUNT', 32)
    call('SET', key, scan[1])
    for i = 1, #scan[2], 2 do
      local id = scan[2][i]
      local job = Jobs.find(id)
      if job then check_active_job(job, now_ms) else call('ZREM', jobs, id) end
    end
  end
end

-- Return the labels of the hosts of live GPU workers.
local function labels_of_gpu_hosts(now_ms)
  local hosts = {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'workers:gpu', '(' .. decimal(now_ms), '+inf')) do
    local labels = redis.pcall('HGET', PREFIX .. 'worker:' .. worker, 'labels')
    hosts[#hosts + 1] = type(labels) == 'string' and labels or ''
  end
  return hosts
end

-- Return whether one of these hosts may compute for a tenant.
local function can_serve(hosts, name)
  for _, labels in ipairs(hosts) do
    if not Tenants.excludes(name, labels) then return true end
  end
  return false
end

local function move_job(job, queue)
  Queues.remove(job)
  Jobs.set_load(job, 0)
  call('ZREM', PREFIX .. 'held:' .. queue .. ':' .. job.tenant, job.id)
  job.queue = 'any.' .. string.sub(queue, 5)
  if job.holders > 0 then Jobs.update_held_index(job) end
  Jobs.update_load(job)
  Jobs.set(job, 'queue', job.queue)
  Jobs.save(job)
  Queues.make_pending(job)
end

-- Move jobs that prefer a GPU to the `any` queue if no GPU may compute them. Each call reads 32 jobs from where the
-- last call stopped.
local function move_batch(queue, hosts)
  local key = PREFIX .. 'sweep:' .. queue
  local from = string.match(call('GET', key) or '', '^%d+$')
  local range = { from and '(' .. from or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 32 }
  local some = call('ZRANGEBYSCORE', PREFIX .. 'pending:' .. queue, unpack(range))
  for i = 1, #some, 2 do
    local job = Jobs.find(some[i])
    if job and job.prefer == 1 and not can_serve(hosts, job.tenant) then move_job(job, queue) end
  end
  if #some == 64 then call('SET', key, some[64]) else call('DEL', key) end
end

local function move_from_gpus(queues, now_ms)
  local is_any_alive = call('ZCOUNT', PREFIX .. 'workers:gpu', decimal(now_ms), '+inf') > 0
  if is_any_alive and not (Tenants.are_registered() and next(Tenants.required_labels())) then return end
  local hosts = is_any_alive and labels_of_gpu_hosts(now_ms) or {}
  for _, queue in ipairs(queues) do
    if string.sub(queue, 1, 4) == 'gpu.' then move_batch(queue, hosts) end
  end
end

local function sweep_tenant(name, now_ms)
  cap_scores(PREFIX .. 'lanes:' .. name, now_ms, PROGRAM_TTL_MS)
  call('ZREMRANGEBYSCORE', PREFIX .. 'lanes:' .. name, '-inf', decimal(now_ms - 60000))
  Tenants.update_capped(name, now_ms)
  local has_used_gpus = Tenants.has_caps(name) and Caps.is_gpu_exhausted(name, now_ms)
  if not has_used_gpus then call('SREM', PREFIX .. 'capped', 'gpu:' .. name) end
  if Tenants.excludes(name) and Tenants.count_lanes(name, now_ms) == 0 then Tenants.reset_credit(name) end
  Admission.admit_backlog(name, now_ms, 100)
end

-- Return whether deferred jobs can continue because a new day has started or their tenant's cap was raised.
local function can_resume(member, now_ms)
  local name, kind = string.match(member, '^(.-):(.*)$')
  if not name or not Tenants.are_registered() or not Tenants.has_caps(name) then return true end
  return Caps.remaining(name, 'units|' .. kind, now_ms) > 0
end

local function resume_batch(member, most, now_ms)
  local waiting = PREFIX .. 'deferred:' .. member
  local back = call('ZRANGE', waiting, 0, most - 1, 'WITHSCORES')
  for i = 1, #back, 2 do
    local job = Jobs.find(back[i])
    if job and job.deferred == 1 then
      Queues.end_deferral(job)
      Jobs.update_load(job)
      Jobs.set(job, 'since', decimal(now_ms)) -- waiting for the cap does not make it aged
      Jobs.save(job)
      Queues.enqueue(job.queue, job.tenant, job.id, back[i + 1])
    end
    call('ZREM', waiting, back[i]) -- even if the job is gone
  end
  if #back < 2 * most then call('SREM', PREFIX .. 'deferred', member) end
end

local function resume_deferred(now_ms)
  local ready = {}
  for _, member in ipairs(call('SMEMBERS', PREFIX .. 'deferred')) do
    if can_resume(member, now_ms) then ready[#ready + 1] = member end
  end
  for _, member in ipairs(ready) do resume_batch(member, math.ceil(MAX_RESUMED / #ready), now_ms) end
end

local function waiting_since(id, now_ms)
  local values = redis.pcall('HMGET', job_key(id), 'created', 'since')
  if values.err then return now_ms end
  return math.max(tonumber(values[1] or now_ms) or now_ms, tonumber(values[2] or 0) or 0)
end

-- Return the indexes with the first jobs of a queue: one per tenant if tenants are registered.
local function indexes_of(queue)
  if not Tenants.are_registered() then return { PREFIX .. 'pending:' .. queue } end
  local indexes = {}
  for _, name in ipairs(call('ZRANGE', PREFIX .. 'order:' .. queue, 0, MAX_TENANTS_READ - 1)) do
    indexes[#indexes + 1] = PREFIX .. 'tenant_pending:' .. queue .. ':' .. name
  end
  return indexes
end

local function has_aged(queue, now_ms, age)
  for _, index in ipairs(indexes_of(queue)) do
    local id = call('ZRANGE', index, 0, 0)[1]
    if id and waiting_since(id, now_ms) <= now_ms - age then return true end
  end
end

-- Update ct:aged: the queues whose first job has waited so long that it gets requests reserved for aged jobs, each with
-- the latest time since which such a job has waited.
local function note_aged(queues, now_ms, age)
  for _, queue in ipairs(queues) do
    local class = Queues.class_of(queue)
    if (class == 'normal' or class == 'low') and has_aged(queue, now_ms, age) then
      call('HSET', PREFIX .. 'aged', queue, decimal(now_ms - age))
    else
      call('HDEL', PREFIX .. 'aged', queue)
    end
  end
  if call('EXISTS', PREFIX .. 'aged') == 0 then call('DEL', PREFIX .. 'aging') end
end

-- Return the time of the next check of a job that is kept for its workflow, or nil. A workflow can refer to results of
-- its jobs, even after a retry, so they are purged after the workflow.
local function kept_until(id, now_ms)
  local workflow = redis.pcall('HGET', job_key(id), 'workflow')
  if type(workflow) ~= 'string' or call('EXISTS', PREFIX .. 'workflow:' .. workflow) == 0 then return nil end
  local expires = tonumber(call('ZSCORE', PREFIX .. 'workflowexpiry', workflow) or nil) or now_ms
  return math.max(now_ms + PINNED_MS, math.min(expires, now_ms + KEPT_MS))
end

-- Purge expired jobs. Return the number of jobs that were read.
local function purge_batch(now_ms)
  local old = call('ZRANGEBYSCORE', PREFIX .. 'expiry', '-inf', decimal(now_ms), 'LIMIT', 0, PURGES_AT_ONCE)
  for _, id in ipairs(old) do
    local later = kept_until(id, now_ms)
    if not later and not Jobs.purge(id) then later = now_ms + PINNED_MS end -- other jobs wait for it
    if later then call('ZADD', PREFIX .. 'expiry', decimal(later), id) end
  end
  return #old
end

local function report_lost_workers(now_ms)
  for _, worker in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'workers', '-inf', decimal(now_ms))) do
    for _, index in ipairs(WORKER_INDEXES) do call('ZREM', PREFIX .. index, worker) end
    local row = PREFIX .. 'worker:' .. worker
    if call('TYPE', row).ok == 'hash' then call('HSET', row, 'state', 'lost') end
    Workers.emit(worker, 'lost')
  end
end

-- SWEEP queues(json) age reserve -> {slots ended, jobs rechecked, jobs purged, 1: call again}
-- `age` is the milliseconds after which a waiting job is aged. `reserve` is the milliseconds after which a runner is
-- reserved for a program that waits for capacity, 0 for never.
local function sweep(args)
  local queues, age, reserve = cjson.decode(args[1]), tonumber(args[2]), tonumber(args[3]) or 0
  local now_ms = now()
  note_sweep(now_ms)
  for _, index in ipairs(WORKER_INDEXES) do cap_scores(PREFIX .. index, now_ms, WORKER_TTL_MS) end
  local slots = end_slots(now_ms)
  local due = recheck_due_jobs(now_ms)
  fail_late_jobs(now_ms)
  check_active_jobs(now_ms)
  move_from_gpus(queues, now_ms)
  resume_deferred(now_ms)
  if Tenants.are_registered() then
    for _, name in ipairs(call('ZRANGE', PREFIX .. 'tenants', 0, -1)) do sweep_tenant(name, now_ms) end
  end
  note_aged(queues, now_ms, age)
  Reservations.renew(now_ms, age, reserve)
  for _, queue in ipairs(queues) do Queues.adjust_wakeups(queue) end
  local old = purge_batch(now_ms)
  report_lost_workers(now_ms)
  local has_more = slots == SLOTS_AT_ONCE or due == JOBS_AT_ONCE or old == PURGES_AT_ONCE
  return { slots, due, old, has_more and 1 or 0 }
end

register({
  { 'sweep', sweep, 'allow-oom' },
})
