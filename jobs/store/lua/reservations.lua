-- Reservations: runners that are kept for programs which wait for room.

-- ct:cramped: programs that a runner could not take for want of room, by since when. ct:reserved: job ->
-- runner|until|leases|all|looked: the runner that is kept for it, when that has room by the timeouts of what runs
-- there, the leases that end before, 1 if jobs of higher priorities wait too, and when SWEEP looked last. The runner's
-- hash names the job.

--- Milliseconds for which a reservation counts after SWEEP has looked at it.
local RESERVED_TTL_MS = 5000
--- Jobs that wait for room at which one call looks.
local CRAMPED_AT_ONCE = 64

-- The reservation of a job, or nil.
function Reservations.read(id, now_ms)
  local runner, till, leases, all, looked =
    string.match(call('HGET', PREFIX .. 'reserved', id) or '', '^(.*)|(%d+)|(%d+)|([01])|(%d+)$')
  if not runner then return nil end
  local age = now_ms - looked
  return { id = id, runner = runner, till = tonumber(till), leases = tonumber(leases), all = all == '1',
    counts = age <= RESERVED_TTL_MS and age >= -RESERVED_TTL_MS }
end

-- Ends the reservation of a job. Returns its runner, or nil.
function Reservations.finish(id)
  local runner = string.match(call('HGET', PREFIX .. 'reserved', id) or '', '^(.*)|%d+|%d+|[01]|%d+$')
  if call('HDEL', PREFIX .. 'reserved', id) == 0 or not runner then return nil end
  local row = PREFIX .. 'worker:' .. runner
  if call('HGET', row, 'reserved') == id then call('HDEL', row, 'reserved') end
  return runner
end

-- A job of programs that waits for room no longer.
function Reservations.forget_wait(id)
  if call('ZREM', PREFIX .. 'cramped', id) == 1 then return Reservations.finish(id) end
end

-- Leases that may still run when a job starts on a runner: those beside which it has room.
local function lasting_beside(room, own, tenant, wanted)
  local some = {}
  for _, each in ipairs(room.leases) do
    if Programs.has_space(room, { each }, own, tenant, wanted) then table.insert(some, each) end
  end
  return some
end

-- How many units of a job a runner may lease now that is kept for another: by a reservation that counts.
function Reservations.units_beside(reservation, job, now_ms)
  if job.id == reservation.id or job.state == 'finishing' then return math.huge end
  local head = call('HMGET', job_key(reservation.id), 'queue', 'requirements', 'tenant')
  local above = Queues.CLASSES[Queues.class_of(head[1] or '') or ''] or 5
  local is_above = (Queues.CLASSES[Queues.class_of(job.queue)] or 5) < above
  if not head[1] or (not reservation.all and is_above) then return math.huge end
  local unit = tonumber(call('HGET', job_key(job.id), 'unit_ms') or nil)
  local most = unit and math.floor((reservation.till - now_ms) / math.max(unit, 1)) or 0
  if most >= 1 then return most end
  -- It leaves what the other needs.
  local room, tenant = Programs.read_room(reservation.runner, now_ms), head[3]
  if not room or (room.shared and tenant ~= job.tenant) then return 0 end
  local beside = Programs.amounts(job.id, Programs.requirements_of(job), room)
  local own, wanted = Programs.amounts(reservation.id, head[2] or '', room)
  local lasting = lasting_beside(room, own, tenant, wanted)
  for _, name in ipairs(Programs.AMOUNTS) do
    if beside[name] == 0 then own[name] = 0 end
  end
  room.shared = false -- whose leases run there is not this job's doing
  return Programs.has_space(room, { beside, unpack(lasting) }, own, nil, wanted) and math.huge or 0
end

-- Live runners that may be kept for a program, by name.
local function runners_of(now_ms, reserve)
  local runners = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'workers:runner', '(' .. decimal(now_ms), '+inf')) do
    local row = redis.pcall('HMGET', PREFIX .. 'worker:' .. name, 'drain', 'cordoned', 'kinds', 'kept_until', 'labels')
    if not row.err and row[1] ~= '1' and (row[2] or '') == '' then
      local sound, kinds = pcall(cjson.decode, row[3] or '')
      local last = math.min(tonumber(row[4] or 0) or 0, now_ms)
      runners[name] = { room = Programs.read_room(name, now_ms), has_rested = now_ms - last >= reserve,
        kinds = sound and type(kinds) == 'table' and kinds or {}, labels = row[5] or '' }
    end
  end
  return runners
end

-- Whether a job could start if a runner did nothing else.
local function waits_for_room(job, now_ms)
  return job and (job.state == 'queued' or job.state == 'running') and job.backlog ~= 1 and job.deferred ~= 1
    and not Tenants.is_capped(job.tenant) and Leases.is_leasable(job, now_ms)
end

local function suits(runner, job)
  if not runner or not runner.room then return false end
  if Tenants.exist() and Tenants.bars(job.tenant, runner.labels) then return false end
  return decimal(tonumber(runner.kinds[job.kind]) or -1) == job.version
    and Programs.is_met(runner.room.offer, Programs.requirements_of(job))
    and Programs.will_have_room(runner.room, job)
end

-- Keeps a runner for a job that waits since then. all: jobs of higher priorities wait, too.
local function keep(round, name, job, since)
  local till, leases = Programs.room_comes(round.runners[name].room, job, round.now_ms)
  round.kept[name] = true
  local all = since <= round.now_ms - round.age and '1' or '0'
  call('HSET', PREFIX .. 'reserved', job.id,
    table.concat({ name, decimal(till), decimal(leases), all, decimal(round.now_ms) }, '|'))
  call('HSET', PREFIX .. 'worker:' .. name, 'reserved', job.id)
end

-- Lets reservations go on that still make sense.
local function keep_on(round)
  for _, id in ipairs(call('HKEYS', PREFIX .. 'reserved')) do
    local reservation, job = Reservations.read(id, round.now_ms), Jobs.find(id)
    local since = tonumber(call('ZSCORE', PREFIX .. 'cramped', id) or nil)
    local goes_on = round.reserve > 0 and reservation and since and waits_for_room(job, round.now_ms)
      and suits(round.runners[reservation.runner], job) and not round.kept[reservation.runner]
    if goes_on then keep(round, reservation.runner, job, since) else Reservations.finish(id) end
  end
end

-- Whether one list comes before another: by its first item that differs.
local function comes_before(one, other)
  local at = 1
  while at < #one and one[at] == other[at] do at = at + 1 end
  return one[at] < other[at]
end

-- The runner that has room first, of those that may be kept for the job; and whether any could take it.
local function best_runner(round, job)
  local best, least, is_any
  for name, runner in pairs(round.runners) do
    if suits(runner, job) then
      is_any = true
      if not round.kept[name] and runner.has_rested then
        local till, leases, endless = Programs.room_comes(runner.room, job, round.now_ms)
        local order = { endless, till, leases, name }
        if not least or comes_before(order, least) then best, least = name, order end
      end
    end
  end
  return best, is_any
end

-- Jobs that have waited for room for long and have no runner kept for them, those first that get one first.
local function waiting_jobs(round)
  local waiting, most = {}, round.reserve > 0 and CRAMPED_AT_ONCE or 0
  local till = decimal(round.now_ms - round.reserve)
  local due = call('ZRANGEBYSCORE', PREFIX .. 'cramped', '-inf', till, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #due, 2 do
    local job, since = Jobs.find(due[i]), tonumber(due[i + 1])
    if not waits_for_room(job, round.now_ms) then
      call('ZREM', PREFIX .. 'cramped', due[i])
    elseif call('HEXISTS', PREFIX .. 'reserved', due[i]) == 0 then
      local class = Queues.class_of(job.queue)
      local given = Tenants.exist() and read_number('HGET', PREFIX .. 'finish:' .. class, job.tenant) or 0
      local order = { Queues.CLASSES[class] or 5, given, since, job.seq }
      waiting[#waiting + 1] = { job = job, since = since, order = order }
    end
  end
  table.sort(waiting, function(one, other) return comes_before(one.order, other.order) end)
  return waiting
end

-- Keeps a runner for each program that has waited for room for `reserve` ms; a runner is kept for one.
function Reservations.renew(now_ms, age, reserve)
  if call('EXISTS', PREFIX .. 'cramped', PREFIX .. 'reserved') == 0 then return end
  cap_scores(PREFIX .. 'cramped', now_ms, 0)
  local round = { runners = runners_of(now_ms, reserve), kept = {}, now_ms = now_ms, age = age, reserve = reserve }
  keep_on(round)
  for _, each in ipairs(waiting_jobs(round)) do
    local best, is_any = best_runner(round, each.job)
    if best then
      keep(round, best, each.job, each.since)
    elseif not is_any then
      -- It waits for such a runner, and not for room.
      call('ZADD', PREFIX .. 'cramped', 'XX', decimal(now_ms), each.job.id)
    end
  end
end
