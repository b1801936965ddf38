-- NEXT: the job that a worker looks at.

--- Milliseconds of estimated work of small jobs that a lane takes at once.
local TAKE_MS = 100

local function answer(turn, reply)
  if State.had_slot and reply[1] ~= 'hold' then Slots.finish(turn.worker) end
  if turn.popped ~= '' then Queues.level_popped(turn.popped) end
  Queues.level_now()
  return reply
end

local function hold(turn, job)
  call('ZADD', PREFIX .. 'slots', decimal(turn.now_ms + turn.slot_ttl), turn.worker)
  call('HSET', PREFIX .. 'slotjob', turn.worker, job.id .. '|' .. decimal(turn.lanes))
  Jobs.count_holders(job, 1, turn.lanes)
  call('ZREM', PREFIX .. 'later', job.id)
  return { 'hold', job.id }
end

local function is_untouched_small(job) return job and job.small == 1 and job.state == 'queued' and job.cursor == 0 end

-- Leases a small job whole, and adds it to the answer. Returns the time that is billed for it.
local function take_one(turn, job, token, is_further_lane)
  Queues.step_out(job.queue, job.tenant, job.id)
  local billed = Leases.grant(job, token, 0, job.total, 0, 0, turn.ttl, turn.worker, turn.now_ms, job.est_ms,
    is_further_lane)
  if Tenants.exist() and Tenants.has_caps(job.tenant) then Caps.foresee(job, job.total, turn.now_ms) end
  job.cursor = job.total
  Jobs.set(job, 'cursor', decimal(job.total))
  Jobs.start(job, turn.now_ms)
  Queues.set_later(job, turn.now_ms + turn.ttl)
  local taken = State.taken
  local last = #taken
  taken[last + 1], taken[last + 2], taken[last + 3] = job.id, token, job.kind
  taken[last + 4] = call('HGET', job_key(job.id), 'spec')
  taken[last + 5], taken[last + 6] = decimal(job.total), decimal(job.est_ms)
  return billed
end

-- Takes small jobs. The lanes of a worker compute them one after the other: they occupy no more lanes than it has, and
-- if the tenant may use fewer, there are only as many jobs.
local function take(turn, queue, job)
  local payer, name = job, Tenants.exist() and job.tenant or nil
  local free = name and Tenants.free_lanes(name, turn.now_ms) or math.huge
  local most = free < turn.lanes and math.min(math.max(free, 1), turn.take) or turn.take
  local count, budget, billed = 0, TAKE_MS * turn.lanes, 0
  State.taken = { 'take' }
  while is_untouched_small(job) and count < most do
    if count > 0 and (budget <= 0 or Turns.has_no_gpu(turn, name)) then break end
    count = count + 1
    billed = billed + take_one(turn, job, turn.token .. 'x' .. decimal(count), count <= turn.lanes)
    budget = budget - job.est_ms
    job = Turns.first(turn, queue, name)
  end
  if name then Tenants.bill(payer, billed) end
  Queues.level(queue, -count)
  return State.taken
end

local function give(turn, job, queue)
  if turn.take > 0 and is_untouched_small(job) then return take(turn, queue, job) end
  Queues.level(queue, -Queues.step_out(queue, job.tenant, job.id))
  return hold(turn, job)
end

-- The pending job of the priority at this rank that has waited longest, and its queue. The worker's own device does not
-- come first: jobs of a saturated device, which come back after each turn, would keep those of `any` waiting for ever.
local function oldest(turn, rank)
  local best, earliest, where
  for _, queue in ipairs(turn.listened.at_rank[rank]) do
    local job, position = Turns.first(turn, queue)
    if job and (not best or position < earliest) then best, earliest, where = job, position, queue end
  end
  return best, where
end

-- Without a bell, most often nothing waits: one call says so of all queues.
local function does_any_wait(turn)
  return turn.popped ~= '' or call('EXISTS', unpack(turn.listened.pending)) > 0
end

-- The first rank at which something may wait or be held: most often nothing does in the first half of the queues, and
-- one call says so of all of them.
local function first_rank(turn)
  local upper = turn.listened.upper
  return (not upper[1] or call('EXISTS', unpack(upper)) == 0) and turn.listened.middle or 1
end

-- The answer at one rank, or nil if nothing waits there. claimed: the job that the runner is kept for. is_first:
-- nothing of a higher rank is held.
local function answer_at(turn, rank, claimed, is_first)
  if claimed and turn.rank[claimed.queue] == rank then
    local above = not is_first and Help.find(turn, rank)
    return above and hold(turn, above) or give(turn, claimed, claimed.queue)
  end
  local job, queue, given
  if Tenants.exist() then job, queue, given = Order.fairest(turn, rank) else job, queue = oldest(turn, rank) end
  if not job then return nil end
  local above = not is_first and Help.find(turn, rank)
  if above then return hold(turn, above) end
  if Tenants.exist() then
    local other = Help.find(turn, rank + 1, given)
    if other then return hold(turn, other) end
    Order.advance(turn, Queues.class_of(queue), given)
  end
  return give(turn, job, queue)
end

-- NEXT worker popped lanes ttl slot_ttl queues(json) token take kinds(json) offer(json) labels replicas
-- -> {hold, id} | {take, id, token, kind, spec, total, est_ms, id, ...} | {none} | {draining} Small jobs are taken up
-- to TAKE_MS of estimated work a lane. popped: the queue whose wake-up RQ has just taken, or ''. take: how many small
-- jobs to take at most; token: how the names of their leases begin. kinds: the version of each kind's model that this
-- worker computes; '' for any. What it lacks is left to others. offer: what a runner has free, and the only tenant
-- whose jobs it may take, if any; '' for other workers. labels: of its host, as labels_of reads them. replicas: 1 from
-- a runner that has no slot free, and starts replicas of services alone.
local function next_job(args)
  local turn = Turns.new(args)
  Queues.level_later() -- the job that is taken most often silences the bell of the one that is parked
  State.had_slot = Slots.park(turn.worker, turn.now_ms) or State.had_slot
  if State.taken and #State.taken > 1 then return answer(turn, State.taken) end

  local row = redis.pcall('HMGET', PREFIX .. 'worker:' .. turn.worker, 'drain', 'device', 'reserved', 'labels')
  if row[1] == '1' then return answer(turn, { 'draining' }) end
  turn.device, turn.labels = row[2], Workers.labels_of(args[11], row[4])
  if turn.runs_programs then Offers.read(turn, args[10] or '', row[3]) end
  if turn.runs_programs and turn.kinds and args[12] == '1' then
    local replica = Offers.replica(turn)
    return answer(turn, replica and give(turn, replica, replica.queue) or { 'none' })
  end
  Queues.call_back(turn.kinds)
  if turn.runs_programs and not turn.is_plain then Offers.call_back(turn) end
  local claimed = turn.runs_programs and Offers.claimed(turn)
  if claimed and turn.kept.all then return answer(turn, give(turn, claimed, claimed.queue)) end
  if not turn.is_plain and (Tenants.exist() or call('EXISTS', PREFIX .. 'aged') == 1) then
    local aged, queue = Order.aged(turn)
    if aged then return answer(turn, give(turn, aged, queue)) end
  end
  if does_any_wait(turn) then
    local from = first_rank(turn)
    for _, rank in ipairs(turn.listened.ranks) do
      local reply = rank >= from and answer_at(turn, rank, claimed, rank == from)
      if reply then return answer(turn, reply) end
    end
  end
  local best = claimed or Help.find(turn, math.huge)
  return answer(turn, best and hold(turn, best) or { 'none' })
end

register({
  { 'next', next_job, 'allow-oom' },
})
