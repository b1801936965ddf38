-- Reservations of runners for programs that wait for capacity.
-- ct:unschedulable has programs for which a runner lacked capacity, scored by the time since then. ct:reserved maps a
-- job to runner|until|leases|all|looked: the reserved runner, the time at which it has capacity according to the
-- timeouts of its leases, the number of leases that must end first, 1 if jobs of higher priorities are also waiting,
-- and the time of the last SWEEP. The runner's hash names the job.

--- Milliseconds for which a reservation is valid after SWEEP has renewed it.
local RESERVED_TTL_MS = 5000
--- Maximum number of jobs waiting for capacity that one call reads.
local MAX_WAITING_READ = 64

-- Return the reservation of a job, or nil.
function Reservations.read(id, now_ms)
  local runner, until_ms, leases, all, looked =
    string.match(call('HGET', PREFIX .. 'reserved', id) or '', '^(.*)|(%d+)|(%d+)|([01])|(%d+)$')
  if not runner then return nil end
  local age = now_ms - looked
  return { id = id, runner = runner, until_ms = tonumber(until_ms), leases = tonumber(leases), all = all == '1',
    counts = age <= RESERVED_TTL_MS and age >= -RESERVED_TTL_MS }
end

-- End the reservation of a job. Return its runner, or nil.
function Reservations.finish(id)
  local runner = string.match(call('HGET', PREFIX .. 'reserved', id) or '', '^(.*)|%d+|%d+|[01]|%d+$')
  if call('HDEL', PREFIX .. 'reserved', id) == 0 or not runner then return nil end
  local worker_key = PREFIX .. 'worker:' .. runner
  if call('HGET', worker_key, 'reserved') == id then call('HDEL', worker_key, 'reserved') end
  return runner
end

-- Record that a program no longer waits for capacity.
function Reservations.stop_waiting(id)
  if call('ZREM', PREFIX .. 'unschedulable', id) == 1 then return Reservations.finish(id) end
end

-- Return the leases of a runner that can still be running when a job starts there.
local function find_compatible_leases(capacity, needs, tenant, required)
  local compatible = {}
  for _, each in ipairs(capacity.leases) do
    if Programs.has_capacity(capacity, { each }, needs, tenant, required) then table.insert(compatible, each) end
  end
  return compatible
end

-- Return the number of another job's units that a runner with a valid reservation can lease now.
function Reservations.count_allowed_units(reservation, job, now_ms)
  if job.id == reservation.id or job.state == 'finishing' then return math.huge end
  local head = call('HMGET', job_key(reservation.id), 'queue', 'requirements', 'tenant')
  local above = Queues.CLASSES[Queues.class_of(head[1] or '') or ''] or 5
  local is_above = (Queues.CLASSES[Queues.class_of(job.queue)] or 5) < above
  if not head[1] or (not reservation.all and is_above) then return math.huge end
  local unit = tonumber(call('HGET', job_key(job.id), 'unit_ms') or nil)
  local most = unit and math.floor((reservation.until_ms - now_ms) / math.max(unit, 1)) or 0
  if most >= 1 then return most end
  -- Otherwise, it must leave the resources of the reserved job free.
  local capacity, tenant = Programs.read_capacity(reservation.runner, now_ms), head[3]
  if not capacity or (capacity.shared and tenant ~= job.tenant) then return 0 end
  local additional = Programs.measure_unit(job.id, Programs.requirements_of(job), capacity)
  local needs, required = Programs.measure_unit(reservation.id, head[2] or '', capacity)
  local compatible = find_compatible_leases(capacity, needs, tenant, required)
  for _, name in ipairs(Programs.AMOUNTS) do
    if additional[name] == 0 then needs[name] = 0 end
  end
  capacity.shared = false -- this job does not change which tenant the runner serves
  return Programs.has_capacity(capacity, { additional, unpack(compatible) }, needs, nil, required) and math.huge or 0
end

-- Return the live runners that can be reserved, by name.
local function list_runners(now_ms, reserve)
  local runners = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'workers:runner', '(' .. decimal(now_ms), '+inf')) do
    local worker = PREFIX .. 'worker:' .. name
    local fields = redis.pcall('HMGET', worker, 'drain', 'cordoned', 'kinds', 'kept_until', 'labels')
    if not fields.err and fields[1] ~= '1' and (fields[2] or '') == '' then
      local ok, kinds = pcall(cjson.decode, fields[3] or '')
      local last = math.min(tonumber(fields[4] or 0) or 0, now_ms)
      runners[name] = { capacity = Programs.read_capacity(name, now_ms), is_reservable = now_ms - last >= reserve,
        kinds = ok and type(kinds) == 'table' and kinds or {}, labels = fields[5] or '' }
    end
  end
  return runners
end

-- Return whether a job could start on an idle runner.
local function is_waiting_for_capacity(job, now_ms)
  return job and (job.state == 'queued' or job.state == 'running') and job.backlog ~= 1 and job.deferred ~= 1
    and not Tenants.is_capped(job.tenant) and Leases.is_leasable(job, now_ms)
end

local function is_suitable(runner, job)
  if not runner or not runner.capacity then return false end
  if Tenants.are_registered() and Tenants.excludes(job.tenant, runner.labels) then return false end
  return decimal(tonumber(runner.kinds[job.kind]) or -1) == job.version
    and Programs.is_satisfied(runner.capacity.offer, Programs.requirements_of(job))
    and Programs.could_fit(runner.capacity, job)
end

-- Reserve a runner for a job that has waited since `since`.
local function reserve_runner(round, name, job, since)
  local until_ms, leases = Programs.estimate_start(round.runners[name].capacity, job, round.now_ms)
  round.reserved[name] = true
  local all = since <= round.now_ms - round.age and '1' or '0'
  call('HSET', PREFIX .. 'reserved', job.id,
    table.concat({ name, decimal(until_ms), decimal(leases), all, decimal(round.now_ms) }, '|'))
  call('HSET', PREFIX .. 'worker:' .. name, 'reserved', job.id)
end

-- Renew valid reservations and end the others.
local function renew_reservations(round)
  for _, id in ipairs(call('HKEYS', PREFIX .. 'reserved')) do
    local reservation, job = Reservations.read(id, round.now_ms), Jobs.find(id)
    local since = tonumber(call('ZSCORE', PREFIX .. 'unschedulable', id) or nil)
    local is_valid = round.reserve > 0 and reservation and since and is_waiting_for_capacity(job, round.now_ms)
      and is_suitable(round.runners[reservation.runner], job) and not round.reserved[reservation.runner]
    if is_valid then reserve_runner(round, reservation.runner, job, since) else Reservations.finish(id) end
  end
end

-- Compare two lists by their first different items.
local function is_less(left, right)
  local at = 1
  while at < #left and left[at] == right[at] do at = at + 1 end
  return left[at] < right[at]
end

-- Return the runner that has capacity first among the runners that can be reserved for the job, and whether any runner
-- could run it.
local function find_best_runner(round, job)
  local best, best_order, has_suitable
  for name, runner in pairs(round.runners) do
    if is_suitable(runner, job) then
      has_suitable = true
      if not round.reserved[name] and runner.is_reservable then
        local until_ms, leases, unbounded = Programs.estimate_start(runner.capacity, job, round.now_ms)
        local order = { unbounded, until_ms, leases, name }
        if not best_order or is_less(order, best_order) then best, best_order = name, order end
      end
    end
  end
  return best, has_suitable
end

-- Return jobs that have waited for capacity long enough and have no reservation, in order of precedence.
local function list_waiting_jobs(round)
  local waiting, most = {}, round.reserve > 0 and MAX_WAITING_READ or 0
  local until_ms = decimal(round.now_ms - round.reserve)
  local due = call('ZRANGEBYSCORE', PREFIX .. 'unschedulable', '-inf', until_ms, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #due, 2 do
    local job, since = Jobs.find(due[i]), tonumber(due[i + 1])
    if not is_waiting_for_capacity(job, round.now_ms) then
      call('ZREM', PREFIX .. 'unschedulable', due[i])
    elseif call('HEXISTS', PREFIX .. 'reserved', due[i]) == 0 then
      local class = Queues.class_of(job.queue)
      local given = Tenants.are_registered() and read_number('HGET', PREFIX .. 'finish:' .. class, job.tenant) or 0
      local order = { Queues.CLASSES[class] or 5, given, since, job.seq }
      waiting[#waiting + 1] = { job = job, since = since, order = order }
    end
  end
  table.sort(waiting, function(left, right) return is_less(left.order, right.order) end)
  return waiting
end

-- Reserve a runner for each program that has waited for capacity for `reserve` ms. A runner is reserved for only one
-- job.
function Reservations.renew(now_ms, age, reserve)
  if call('EXISTS', PREFIX .. 'unschedulable', PREFIX .. 'reserved') == 0 then return end
  cap_scores(PREFIX .. 'unschedulable', now_ms, 0)
  local round = { runners = list_runners(now_ms, reserve), reserved = {}, now_ms = now_ms, age = age,
    reserve = reserve }
  renew_reservations(round)
  for _, each in ipairs(list_waiting_jobs(round)) do
    local best, has_suitable = find_best_runner(round, each.job)
    if best then
      reserve_runner(round, best, each.job, each.since)
    elseif not has_suitable then
      -- It waits for a suitable runner, not for capacity.
      call('ZADD', PREFIX .. 'unschedulable', 'XX', decimal(now_ms), each.job.id)
    end
  end
end
