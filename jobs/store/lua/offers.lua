-- Offers: the free resources of a runner that calls NEXT, and optionally the only tenant whose jobs it accepts.

--- Maximum number of waiting service replicas that one call reads.
local MAX_REPLICAS_READ = 100

local function fits(request, requirements)
  if requirements == '' or not request.offer then return true end
  if request.fits[requirements] == nil then
    request.fits[requirements] = Programs.is_satisfied(request.offer, requirements)
  end
  return request.fits[requirements]
end

local function allows_tenant(request, name)
  return not request.offer or (request.offer.tenant or '') == '' or request.offer.tenant == name
end

-- Add the runner's offer and reservation to a request. `offer` is JSON, or ''. `reserved` is the job for which the
-- runner is reserved, or nil.
function Offers.read(request, offer, reserved)
  request.offer, request.fits, request.can_start = offer ~= '' and cjson.decode(offer) or nil, {}, {}
  local reservation = reserved and Reservations.read(reserved, request.now_ms)
  local is_valid = reservation and reservation.counts and reservation.runner == request.worker
  request.reservation = is_valid and reservation or nil
end

function Offers.has_capacity(request, job)
  if job.state == 'finishing' then return true end
  return allows_tenant(request, job.tenant) and fits(request, Programs.requirements_of(job))
end

-- Return whether a job can start on a runner that is reserved for another job, without delaying that job.
local function can_start(request, job)
  if not request.reservation then return true end
  if request.can_start[job.id] == nil then
    request.can_start[job.id] = Reservations.count_allowed_units(request.reservation, job, request.now_ms) >= 1
  end
  return request.can_start[job.id]
end

function Offers.can_take(request, job) return Offers.has_capacity(request, job) and can_start(request, job) end

local function can_requeue(request, id)
  local job = request.reservation and Jobs.find(id)
  return not request.reservation or (job and can_start(request, job))
end

-- Make one job with these requirements pending, which this runner meets. One is enough, because the runner starts one
-- job at a time.
local function requeue_one(request, name, queue)
  local key = PREFIX .. 'unsupported:' .. name
  local is_restricted = request.reservation or (request.offer and (request.offer.tenant or '') ~= '')
  local first = call('ZRANGE', key, 0, is_restricted and Queues.MAX_REQUEUED - 1 or 0, 'WITHSCORES')
  for i = 1, #first, 2 do
    local owner = Jobs.tenant_of(first[i])
    if allows_tenant(request, owner) and can_requeue(request, first[i]) then
      call('ZREM', key, first[i])
      Queues.enqueue(queue, owner, first[i], first[i + 1])
      Queues.adjust_wakeups(queue)
      break
    end
  end
  if call('EXISTS', key) == 0 then call('SREM', PREFIX .. 'unsupported_programs', name) end
end

function Offers.requeue_supported(request)
  for _, name in ipairs(call('SMEMBERS', PREFIX .. 'unsupported_programs')) do
    local queue, kind, version, requirements = string.match(name, '^(.-):([^|]*)|([^|]*)|?(.*)$')
    local has_kind = queue and (not request.kinds or request.kinds[kind] == version)
    if has_kind and fits(request, requirements) then requeue_one(request, name, queue) end
  end
end

-- Return the job for which the runner is reserved, made pending, if there is capacity for it.
function Offers.find_reserved(request)
  local job = request.reservation and Jobs.find(request.reservation.id)
  if not job or not Jobs.SCHEDULABLE[job.state] or job.backlog == 1 then return nil end
  if not Offers.has_capacity(request, job) or not Leases.is_leasable(job, request.now_ms) then return nil end
  if Requests.is_tenant_unavailable(request, job.tenant) or Requests.is_exhausted(request, job) then return nil end
  if not Requests.supports(request, job) then return nil end
  local key = PREFIX .. 'unsupported:' .. Queues.unsupported_member(job)
  local position = call('ZSCORE', key, job.id)
  if position then
    call('ZREM', key, job.id)
    Queues.enqueue(job.queue, job.tenant, job.id, position)
    Queues.adjust_wakeups(job.queue)
  end
  return job
end

-- Return whether a runner starts one replica before another: by priority, then by age.
local function is_before(left, right)
  local rank = Queues.CLASSES[Queues.class_of(left.queue)] or 5
  local other_rank = Queues.CLASSES[Queues.class_of(right.queue)] or 5
  return rank < other_rank or (rank == other_rank and left.seq < right.seq)
end

local function can_start_replica(request, job)
  return Requests.supports(request, job) and can_start(request, job)
    and not Requests.is_tenant_unavailable(request, job.tenant) and not Requests.is_exhausted(request, job)
end

-- Return the waiting replica that this runner starts next. If there are many, only some are read. Jobs that need a slot
-- are not considered.
function Offers.find_replica(request)
  local best
  for _, id in ipairs(call('SRANDMEMBER', PREFIX .. 'waiting_replicas', MAX_REPLICAS_READ)) do
    local job = Jobs.find(id)
    local waits = job and Jobs.SCHEDULABLE[job.state] and job.backlog ~= 1 and Leases.is_leasable(job, request.now_ms)
    if not waits then
      call('SREM', PREFIX .. 'waiting_replicas', id)
    elseif not Offers.has_capacity(request, job) then
      call('ZADD', PREFIX .. 'unschedulable', 'NX', decimal(request.now_ms), id)
    elseif can_start_replica(request, job) and (not best or is_before(job, best)) then
      best = job
    end
  end
  if best then call('ZREM', PREFIX .. 'unsupported:' .. Queues.unsupported_member(best), best.id) end
  return best
end
