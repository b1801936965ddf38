-- NEXT: assigns the next job to a worker.

--- Milliseconds of estimated work in small jobs that one lane takes at once.
local SMALL_JOBS_MS = 100

local function finish_request(request, reply)
  if State.had_slot and reply[1] ~= 'hold' then Slots.remove(request.worker) end
  if request.popped ~= '' then Queues.adjust_after_pop(request.popped) end
  Queues.flush_wakeups()
  return reply
end

local function grant_slot(request, job)
  call('ZADD', PREFIX .. 'slots', decimal(request.now_ms + request.slot_ttl), request.worker)
  call('HSET', PREFIX .. 'slotjob', request.worker, job.id .. '|' .. decimal(request.lanes))
  Jobs.count_holders(job, 1, request.lanes)
  call('ZREM', PREFIX .. 'recheck', job.id)
  return { 'hold', job.id }
end

local function is_untouched_small(job) return job and job.small == 1 and job.state == 'queued' and job.cursor == 0 end

-- Lease all units of a small job and add it to the reply. Return the milliseconds to be billed.
local function take_job(request, job, token, is_further_lane)
  local spec = Jobs.read_spec(job)
  Queues.dequeue(job.queue, job.tenant, job.id)
  local billed = Leases.grant(job, token, 0, job.total, 0, 0, request.ttl, request.worker, request.now_ms, job.est_ms,
    is_further_lane)
  if Tenants.are_registered() and Tenants.has_caps(job.tenant) then Caps.reserve(job, job.total, request.now_ms) end
  job.cursor = job.total
  Jobs.set(job, 'cursor', decimal(job.total))
  Jobs.start(job, request.now_ms)
  Queues.recheck_at(job, request.now_ms + request.ttl)
  local taken = State.taken
  local last = #taken
  taken[last + 1], taken[last + 2], taken[last + 3] = job.id, token, job.kind
  taken[last + 4], taken[last + 5], taken[last + 6] = spec, decimal(job.total), decimal(job.est_ms)
  return billed
end

-- Take several small jobs. A worker's lanes compute them one after the other, so they count as at most the number of
-- its lanes. If the tenant can use fewer lanes, take only as many jobs.
local function take_small_jobs(request, queue, job)
  local payer, name = job, Tenants.are_registered() and job.tenant or nil
  local free = name and Tenants.free_lanes(name, request.now_ms) or math.huge
  local max_jobs = free < request.lanes and math.min(math.max(free, 1), request.take) or request.take
  local count, budget, billed = 0, SMALL_JOBS_MS * request.lanes, 0
  State.taken = { 'take' }
  while is_untouched_small(job) and count < max_jobs do
    if count > 0 and (budget <= 0 or Requests.is_gpu_exhausted(request, name)) then break end
    count = count + 1
    billed = billed + take_job(request, job, request.token .. 'x' .. decimal(count), count <= request.lanes)
    budget = budget - job.est_ms
    job = Requests.find_first(request, queue, name)
  end
  if name then Tenants.bill(payer, billed) end
  Queues.adjust_wakeups(queue, -count)
  return State.taken
end

local function assign(request, job, queue)
  if request.take > 0 and is_untouched_small(job) then return take_small_jobs(request, queue, job) end
  Queues.adjust_wakeups(queue, -Queues.dequeue(queue, job.tenant, job.id))
  return grant_slot(request, job)
end

-- Return the longest-waiting pending job of this rank, and its queue. The worker's own device has no precedence.
-- Otherwise, jobs of a saturated device, which become pending again after each slot, would starve jobs for `any`.
local function find_oldest(request, rank)
  local best, earliest, best_queue
  for _, queue in ipairs(request.subscription.at_rank[rank]) do
    local job, position = Requests.find_first(request, queue)
    if job and (not best or position < earliest) then best, earliest, best_queue = job, position, queue end
  end
  return best, best_queue
end

-- Return whether a job may be waiting. If this call has released no job, and without a wake-up, usually none is, and
-- one call for all queues suffices.
local function has_waiting_jobs(request)
  return request.popped ~= '' or next(State.wakeup_changes) or call('EXISTS', unpack(request.subscription.pending)) > 0
end

-- Return the first rank at which jobs can be waiting or held. Usually the first half of the queues has none.
local function first_rank(request)
  local subscription = request.subscription
  if not request.is_upper_empty then return 1 end
  for queue in pairs(State.wakeup_changes) do
    if (request.rank[queue] or subscription.middle) < subscription.middle then return 1 end
  end
  return subscription.middle
end

-- Return the reply at one rank, or nil if no job waits there. reserved_job is the job for which the runner is reserved.
local function answer_at_rank(request, rank, reserved_job)
  local is_first = rank == request.first_rank -- no job of a higher rank is held
  if reserved_job and request.rank[reserved_job.queue] == rank then
    local higher = not is_first and Help.find(request, rank)
    return higher and grant_slot(request, higher) or assign(request, reserved_job, reserved_job.queue)
  end
  local job, queue, finish
  if Tenants.are_registered() then
    job, queue, finish = Order.find_fairest(request, rank)
  else
    job, queue = find_oldest(request, rank)
  end
  if not job then return nil end
  local higher = not is_first and Help.find(request, rank)
  if higher then return grant_slot(request, higher) end
  if Tenants.are_registered() then
    local other = Help.find(request, rank + 1, finish)
    if other then return grant_slot(request, other) end
    Order.advance_clock(request, Queues.class_of(queue), finish)
  end
  return assign(request, job, queue)
end

-- NEXT worker popped lanes ttl slot_ttl queues(json) token take kinds(json) offer(json) labels replicas -> {hold, id}
-- | {take, id, token, kind, spec, total, est_ms, id, ...} | {none} | {draining}
-- `popped` is the queue of the wake-up that was just popped from RQ, or ''. `take` is the maximum number of small jobs,
-- and `token` is the prefix of their lease tokens. `kinds` has the supported version of each kind's model; '' means
-- all. Unsupported jobs are left to other workers. `offer` has a runner's free resources, and optionally the only
-- tenant whose jobs it accepts; '' for other workers. `labels` are the labels of its host; see labels_of. `replicas` is
-- 1 if the runner has no free slot and can only start replicas of services.
local function next_job(args)
  local request = Requests.new(args)
  Queues.defer_wakeups() -- taking a job usually cancels the wake-up for the released one
  State.had_slot = Slots.release(request.worker, request.now_ms) or State.had_slot
  if State.taken and #State.taken > 1 then return finish_request(request, State.taken) end

  local fields = redis.pcall('HMGET', PREFIX .. 'worker:' .. request.worker, 'drain', 'device', 'reserved', 'labels')
  if fields[1] == '1' then return finish_request(request, { 'draining' }) end
  request.device, request.labels = fields[2], Workers.labels_of(args[11], fields[4])
  if request.runs_programs then Offers.read(request, args[10] or '', fields[3]) end
  if request.runs_programs and request.kinds and args[12] == '1' then
    local replica = Offers.find_replica(request)
    return finish_request(request, replica and assign(request, replica, replica.queue) or { 'none' })
  end
  Queues.requeue_supported(request.kinds)
  if request.runs_programs and not request.is_simple then Offers.requeue_supported(request) end
  local reserved_job = request.runs_programs and Offers.find_reserved(request)
  if reserved_job and request.reservation.all then
    return finish_request(request, assign(request, reserved_job, reserved_job.queue))
  end
  if not request.is_simple and (Tenants.are_registered() or call('EXISTS', PREFIX .. 'aged') == 1) then
    local aged, queue = Order.find_aged(request)
    if aged then return finish_request(request, assign(request, aged, queue)) end
  end
  request.first_rank = first_rank(request)
  if has_waiting_jobs(request) then
    for _, rank in ipairs(request.subscription.ranks) do
      local reply = rank >= request.first_rank and answer_at_rank(request, rank, reserved_job)
      if reply then return finish_request(request, reply) end
    end
  end
  local best = reserved_job or Help.find(request, math.huge)
  return finish_request(request, best and grant_slot(request, best) or { 'none' })
end

register({
  { 'next', next_job, 'allow-oom' },
})
