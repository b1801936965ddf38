-- Queues: jobs that wait for a worker, and the wake-ups in RQ's queues that make workers call NEXT.

-- Priorities, most urgent first.
Queues.CLASSES = { interactive = 1, high = 2, normal = 3, low = 4 }
--- Maximum number of jobs of one kind that a worker makes pending again at once.
Queues.MAX_REQUEUED = 32

-- Cache of the priorities of queues.
local CLASS_OF = {}

-- Return the priority of a queue.
function Queues.class_of(queue)
  if not CLASS_OF[queue] then
    local class = string.match(queue, '%.(.*)$')
    if not Queues.CLASSES[class] then return class end
    CLASS_OF[queue] = class
  end
  return CLASS_OF[queue]
end

-- Add wake-ups to a queue. The length of RQ's queue is the number of jobs that wait for a worker. All wake-ups have the
-- ID of the same RQ job.
function Queues.notify(queue, count)
  local ids = {}
  for i = 1, math.min(count, 1000) do ids[i] = 'wakeup' end
  if ids[1] then call('RPUSH', 'rq:queue:' .. queue, unpack(ids)) end
end

local function remove_wakeups(queue, count)
  if count > 0 then call('RPOP', 'rq:queue:' .. queue, decimal(math.min(count, 1000))) end
end

-- Count jobs without wake-ups: jobs of tenants that use all their lanes, and jobs that hosts with these labels may not
-- compute. Without labels, count the jobs that any host may not compute.
function Queues.count_capped(queue, labels)
  return Tenants.are_registered() and Tenants.count_capped(queue, labels) or 0
end

-- Keep one wake-up for each waiting job. `change` is the number of added jobs, if it is known and no tenant has jobs
-- without wake-ups. SWEEP counts the jobs every second.
function Queues.adjust_wakeups(queue, change)
  if State.wakeup_changes then
    State.wakeup_changes[queue] = (State.wakeup_changes[queue] or 0) + (change or math.huge)
    return
  end
  if not change or change == math.huge or Tenants.are_registered() then
    local waiting = call('ZCARD', PREFIX .. 'pending:' .. queue) - Queues.count_capped(queue)
    change = waiting - call('LLEN', 'rq:queue:' .. queue)
  end
  Queues.notify(queue, change)
  remove_wakeups(queue, -change)
end

-- Adjust a queue whose wake-up was popped. If jobs were taken from the queue, the wake-up belonged to one of them.
-- Otherwise, add it again for the job that this worker cannot take.
function Queues.adjust_after_pop(queue)
  local change = State.wakeup_changes[queue]
  Queues.adjust_wakeups(queue, change and change < 0 and 1 or nil)
end

-- Collect changes of wake-ups until flush_wakeups. The changes of one call usually cancel out.
function Queues.defer_wakeups() State.wakeup_changes = State.wakeup_changes or {} end

function Queues.flush_wakeups()
  local changes = State.wakeup_changes or {}
  State.wakeup_changes = nil
  for queue, change in pairs(changes) do
    if change ~= 0 then Queues.adjust_wakeups(queue, change) end
  end
end

-- Add a job at a position. Return whether it was not pending; a pending job keeps its position. ct:waiting_replicas has
-- the pending and unsupported replicas of services.
function Queues.enqueue(queue, name, id, position)
  if Programs.is_replica(id) then call('SADD', PREFIX .. 'waiting_replicas', id) end
  if call('ZADD', PREFIX .. 'pending:' .. queue, 'NX', position, id) == 0 then return false end
  if Tenants.are_registered() then Tenants.enqueue(queue, name, id, position) end
  return true
end

function Queues.dequeue(queue, name, id)
  if Programs.is_replica(id) then call('SREM', PREFIX .. 'waiting_replicas', id) end
  if Tenants.are_registered() then Tenants.dequeue(queue, name, id) end
  return call('ZREM', PREFIX .. 'pending:' .. queue, id)
end

-- Return the name under which ct:unsupported:{name} has jobs that the last worker did not support: queue:kind|version,
-- with |requirements appended if a program has some. The jobs keep their positions. The set ct:unsupported has the
-- names that can have jobs; ct:unsupported_programs has the names for programs. A finishing job has no requirements.
-- State.has_no_unsupported is true if ct:unsupported is known to be empty.
function Queues.unsupported_member(job, requirements_text)
  local name = job.queue .. ':' .. tostring(job.kind) .. '|' .. tostring(job.version)
  requirements_text = requirements_text or (job.state == 'finishing' and '' or Programs.requirements_of(job))
  return requirements_text == '' and name or name .. '|' .. requirements_text
end

local function note_unsupported(job)
  local index = Programs.is_program(job) and 'unsupported_programs' or 'unsupported'
  call('SADD', PREFIX .. index, Queues.unsupported_member(job))
end

local function is_unsupported(job)
  if State.has_no_unsupported and not Programs.is_program(job) then return false end
  return call('ZSCORE', PREFIX .. 'unsupported:' .. Queues.unsupported_member(job), job.id)
end

-- Remove a job from the jobs that wait for the next day because of a cap on daily units.
function Queues.end_deferral(job)
  if job.deferred == 0 then return end
  call('ZREM', PREFIX .. 'deferred:' .. job.tenant .. ':' .. job.kind, job.id)
  call('HDEL', job_key(job.id), 'deferred')
  job.deferred = 0
end

function Queues.make_pending(job)
  if job.state == 'finishing' then Queues.end_deferral(job) end -- finishing needs no more units
  if job.deferred == 1 then
    call('SADD', PREFIX .. 'deferred', job.tenant .. ':' .. job.kind)
  elseif is_unsupported(job) then
    note_unsupported(job)
  elseif Queues.enqueue(job.queue, job.tenant, job.id, decimal(call('INCR', PREFIX .. 'seq'))) then
    Queues.adjust_wakeups(job.queue, 1)
  end
  call('ZREM', PREFIX .. 'recheck', job.id)
end

function Queues.remove(job)
  if Queues.dequeue(job.queue, job.tenant, job.id) == 1 then Queues.adjust_wakeups(job.queue, -1) end
  call('ZREM', PREFIX .. 'unsupported:' .. Queues.unsupported_member(job), job.id)
  if Programs.is_program(job) then Reservations.stop_waiting(job.id) end
  local requirements = Programs.requirements_of(job)
  if requirements ~= '' then
    call('ZREM', PREFIX .. 'unsupported:' .. Queues.unsupported_member(job, requirements), job.id)
  end
  Queues.end_deferral(job)
end

-- Move a pending job to the unsupported jobs, where it waits for another worker.
function Queues.mark_unsupported(job)
  State.has_no_unsupported = nil
  local position = call('ZSCORE', PREFIX .. 'pending:' .. job.queue, job.id)
  call('ZADD', PREFIX .. 'unsupported:' .. Queues.unsupported_member(job), position, job.id)
  Queues.dequeue(job.queue, job.tenant, job.id)
  if Programs.is_replica(job.id) then call('SADD', PREFIX .. 'waiting_replicas', job.id) end
  note_unsupported(job)
end

-- Make the jobs pending again that a worker with these versions supports. Without versions, all of them.
function Queues.requeue_supported(kinds)
  if State.has_no_unsupported then return end
  for _, name in ipairs(call('SMEMBERS', PREFIX .. 'unsupported')) do
    local queue, kind, version = string.match(name, '^(.-):(.*)|(.-)$')
    if queue and (not kinds or kinds[kind] == version) then
      local back = call('ZPOPMIN', PREFIX .. 'unsupported:' .. name, Queues.MAX_REQUEUED)
      for i = 1, #back, 2 do Queues.enqueue(queue, Jobs.tenant_of(back[i]), back[i], back[i + 1]) end
      if #back < 2 * Queues.MAX_REQUEUED then call('SREM', PREFIX .. 'unsupported', name) end
      Queues.adjust_wakeups(queue)
    end
  end
end

-- Make SWEEP check a job at this time. SWEEP treats times beyond LEASE_TTL as written before the clock was set back.
function Queues.recheck_at(job, at)
  if Programs.is_program(job) then at = math.min(at, now() + LEASE_TTL_MS) end
  call('ZADD', PREFIX .. 'recheck', decimal(at), job.id)
end

-- Make a job pending if it has leasable work; otherwise recheck it when its leases or backoff end.
function Queues.reschedule(job, now_ms)
  if job.backlog == 1 then return end
  if job.state == 'running' or job.state == 'queued' then
    if Leases.is_leasable(job, now_ms) then
      Queues.make_pending(job)
    elseif job.holders <= 0 then
      local at = Leases.next_change(job, now_ms)
      Queues.recheck_at(job, at < math.huge and at or now_ms)
    end
  elseif job.holders <= 0 then
    if job.state == 'finishing' then
      Queues.make_pending(job)
    elseif job.state == 'cancelling' then
      Queues.recheck_at(job, math.min(earliest_score(job_key(job.id, 'leases')), now_ms + 60000))
    end
  end
end

-- Return the number of slots of a device's workers. If other devices have workers, count the smaller group. `any` means
-- all devices except runners, of which `runners` are alive.
local function count_slots(device, runners)
  local held, own, others, count = call('ZCARD', PREFIX .. 'slots'), PREFIX .. 'workers:' .. device, {}, 0
  if held == 0 or (device == 'any' and runners == 0) then return held end
  for _, other in ipairs(device == 'any' and { 'runner' } or { 'cpu', 'gpu', 'runner' }) do
    if other ~= device then others[#others + 1] = PREFIX .. 'workers:' .. other end
  end
  if call('EXISTS', unpack(others)) == 0 then return held end
  for _, other in ipairs(others) do count = count + call('ZCARD', other) end
  if device ~= 'any' and call('ZCARD', own) < count then return #call('ZINTER', 2, own, PREFIX .. 'slots') end
  for _, other in ipairs(others) do held = held - #call('ZINTER', 2, other, PREFIX .. 'slots') end
  return held
end

-- Notify up to `most` idle workers that can help with a job. Waiting wake-ups are subtracted, so that a thousand jobs
-- do not notify a thousand workers each. Runners do not read wake-ups for any device.
function Queues.notify_helpers(job, most)
  local device = string.match(job.queue, '^(%a+)')
  local runners = device == 'any' and call('ZCARD', PREFIX .. 'workers:runner') or 0
  local live = call('ZCARD', PREFIX .. (device == 'any' and 'workers' or 'workers:' .. device)) - runners
  local idle = live - call('LLEN', 'rq:queue:' .. job.queue)
  if idle > 0 and most > 0 then idle = idle - count_slots(device, runners) end
  Queues.notify(job.queue, math.min(idle, most))
end
