-- Offers: what a runner that asks NEXT has free, and the only tenant whose jobs it may take, if any.

--- Waiting replicas of services at which one call looks.
local REPLICAS_TRIED = 100

local function fits(turn, requirements)
  if requirements == '' or not turn.offer then return true end
  if turn.fits[requirements] == nil then turn.fits[requirements] = Programs.is_met(turn.offer, requirements) end
  return turn.fits[requirements]
end

local function is_let_in(turn, name)
  return not turn.offer or (turn.offer.tenant or '') == '' or turn.offer.tenant == name
end

-- Begins the turn of a runner. offer: JSON, or ''. reserved: the job that the runner is kept for, if any.
function Offers.read(turn, offer, reserved)
  turn.offer, turn.fits, turn.may_start = offer ~= '' and cjson.decode(offer) or nil, {}, {}
  local reservation = reserved and Reservations.read(reserved, turn.now_ms)
  turn.kept = reservation and reservation.counts and reservation.runner == turn.worker and reservation or nil
end

function Offers.has_room(turn, job)
  return job.state == 'finishing' or (is_let_in(turn, job.tenant) and fits(turn, Programs.requirements_of(job)))
end

-- A runner that is kept for a job starts others only as far as that does not wait longer for them.
local function may_start(turn, job)
  if not turn.kept then return true end
  if turn.may_start[job.id] == nil then
    turn.may_start[job.id] = Reservations.units_beside(turn.kept, job, turn.now_ms) >= 1
  end
  return turn.may_start[job.id]
end

function Offers.is_able(turn, job) return Offers.has_room(turn, job) and may_start(turn, job) end

local function may_come(turn, id)
  local job = turn.kept and Jobs.find(id)
  return not turn.kept or (job and may_start(turn, job))
end

-- Brings back one job of each requirements that this runner meets: the others would wait in vain.
local function call_one_back(turn, name, queue)
  local place, is_choosy = PREFIX .. 'lacked:' .. name, turn.kept or (turn.offer and (turn.offer.tenant or '') ~= '')
  local first = call('ZRANGE', place, 0, is_choosy and Queues.CALLED_BACK - 1 or 0, 'WITHSCORES')
  for i = 1, #first, 2 do
    local owner = Jobs.tenant_of(first[i])
    if is_let_in(turn, owner) and may_come(turn, first[i]) then
      call('ZREM', place, first[i])
      Queues.line_up(queue, owner, first[i], first[i + 1])
      Queues.level(queue)
      break
    end
  end
  if call('EXISTS', place) == 0 then call('SREM', PREFIX .. 'unfit', name) end
end

function Offers.call_back(turn)
  for _, name in ipairs(call('SMEMBERS', PREFIX .. 'unfit')) do
    local queue, kind, version, requirements = string.match(name, '^(.-):([^|]*)|([^|]*)|?(.*)$')
    local has_kind = queue and (not turn.kinds or turn.kinds[kind] == version)
    if has_kind and fits(turn, requirements) then call_one_back(turn, name, queue) end
  end
end

-- The job that this runner is kept for, pending, once there is room for it.
function Offers.claimed(turn)
  local job = turn.kept and Jobs.find(turn.kept.id)
  if not job or not Jobs.PENDABLE[job.state] or job.backlog == 1 then return nil end
  if not Offers.has_room(turn, job) or not Leases.is_leasable(job, turn.now_ms) then return nil end
  if Turns.is_out(turn, job.tenant) or Turns.is_spent(turn, job) or not Turns.has_kind(turn, job) then return nil end
  local place = PREFIX .. 'lacked:' .. Queues.lacked_member(job)
  local position = call('ZSCORE', place, job.id)
  if position then
    call('ZREM', place, job.id)
    Queues.line_up(job.queue, job.tenant, job.id, position)
    Queues.level(job.queue)
  end
  return job
end

-- Whether a runner starts one replica before another: by priority, then by age.
local function is_before(one, other)
  local mine = Queues.CLASSES[Queues.class_of(one.queue)] or 5
  local others = Queues.CLASSES[Queues.class_of(other.queue)] or 5
  return mine < others or (mine == others and one.seq < other.seq)
end

local function may_start_replica(turn, job)
  return Turns.has_kind(turn, job) and may_start(turn, job) and not Turns.is_out(turn, job.tenant)
    and not Turns.is_spent(turn, job)
end

-- The waiting replica that this runner starts next; of very many it looks at some. Jobs that need a slot stay where
-- they wait.
function Offers.replica(turn)
  local best
  for _, id in ipairs(call('SRANDMEMBER', PREFIX .. 'waiting_replicas', REPLICAS_TRIED)) do
    local job = Jobs.find(id)
    local waits = job and Jobs.PENDABLE[job.state] and job.backlog ~= 1 and Leases.is_leasable(job, turn.now_ms)
    if not waits then
      call('SREM', PREFIX .. 'waiting_replicas', id)
    elseif not Offers.has_room(turn, job) then
      call('ZADD', PREFIX .. 'cramped', 'NX', decimal(turn.now_ms), id)
    elseif may_start_replica(turn, job) and (not best or is_before(job, best)) then
      best = job
    end
  end
  if best then call('ZREM', PREFIX .. 'lacked:' .. Queues.lacked_member(best), best.id) end
  return best
end
