-- Leases: ranges that lanes compute.

--- Maximum wait in milliseconds of a failed program unit.
local MAX_WAIT_MS = 3600000

-- Return the milliseconds without a heartbeat after which a lease expires.
function Leases.ttl(job) return Programs.is_program(job) and PROGRAM_TTL_MS or LEASE_TTL_MS end

-- Return a lease. It is stored as lo:hi:upto:expiries:errors:granted:lane. If tenants are billed, the billed
-- milliseconds precede the lane.
function Leases.read(id, token)
  local text = call('HGET', job_key(id, 'lease'), token)
  if not text then return nil end
  local lo, hi, upto, expiries, errors, granted, lane = string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$')
  local billed, name = string.match(lane or '', '^(%d+):(.*)$')
  return { lo = tonumber(lo), hi = tonumber(hi), upto = tonumber(upto), expiries = tonumber(expiries),
    errors = tonumber(errors), granted = tonumber(granted), billed = tonumber(billed), lane = name or lane }
end

function Leases.write(id, token, lease)
  local text = decimal(lease.lo) .. ':' .. decimal(lease.hi) .. ':' .. decimal(lease.upto) .. ':' ..
    decimal(lease.expiries) .. ':' .. decimal(lease.errors) .. ':' .. decimal(lease.granted) .. ':' ..
    (lease.billed and decimal(lease.billed) .. ':' or '') .. lease.lane
  call('HSET', job_key(id, 'lease'), token, text)
end

-- Return the runner of a program's lease, whose lane is named worker/lane. ct:leased:{worker} has these leases as
-- job|token.
function Leases.runner_of(lease) return string.match(lease.lane or '', '^(.*)/') or '' end

-- Remove a lease that was read before. `only` is true if the job has no other lease.
function Leases.drop(job, token, now_ms, lease, only)
  if lease and Programs.is_program(job) then
    call('SREM', PREFIX .. 'leased:' .. Leases.runner_of(lease), job.id .. '|' .. token)
  end
  if only then
    call('DEL', job_key(job.id, 'lease'), job_key(job.id, 'leases'))
  else
    call('HDEL', job_key(job.id, 'lease'), token)
    call('ZREM', job_key(job.id, 'leases'), token)
  end
  if not Tenants.are_registered() then return end
  if call('ZREM', PREFIX .. 'lanes:' .. job.tenant, token) == 1 and Tenants.is_limited(job.tenant) then
    Tenants.update_capped(job.tenant, now_ms)
  end
end

-- Notify the workers that have leases of a job to send heartbeats at once; the replies say what to do with the leases.
-- Without this, they learn it from their next heartbeats.
function Leases.notify_holders(job)
  local notified = {}
  for _, token in ipairs(call('HKEYS', job_key(job.id, 'lease'))) do
    local lease = Leases.read(job.id, token) or {}
    local worker = string.match(lease.lane or '', '^(.*)/') or lease.lane
    if worker and not notified[worker] then call('PUBLISH', PREFIX .. 'stops:' .. worker, job.id) end
    if worker then notified[worker] = true end
  end
end

function Leases.cap_expiries(job, now_ms)
  cap_scores(job_key(job.id, 'leases'), now_ms, Leases.ttl(job))
  local longest = Programs.is_program(job) and MAX_WAIT_MS or Ranges.backoff(SETTINGS.max_errors)
  cap_scores(job_key(job.id, 'retry'), now_ms, longest)
end

-- Return the time until which expired leases of the job are kept; 0 if they are reclaimed at once. Leases of programs
-- are kept for a while after SWEEP did not run, because runners could not send heartbeats during an outage, either.
-- ct:grace has `swept`, the time of the last SWEEP, and `until`.
function Leases.grace_until(job, now_ms)
  if not Programs.is_program(job) then return 0 end
  local known = call('HMGET', PREFIX .. 'grace', 'swept', 'until')
  local swept, grace_end = tonumber(known[1] or nil), tonumber(known[2] or 0) or 0
  if swept and now_ms - swept > SWEEP_OVERDUE_MS then grace_end = now_ms + PROGRAM_TTL_MS end
  return grace_end > now_ms and math.min(grace_end, now_ms + PROGRAM_TTL_MS) or 0
end

function Leases.reclaim(job, now_ms)
  Leases.cap_expiries(job, now_ms)
  if Leases.grace_until(job, now_ms) > 0 then return end
  local leases = job_key(job.id, 'leases')
  for _, token in ipairs(call('ZRANGEBYSCORE', leases, '-inf', decimal(now_ms), 'LIMIT', '0', '64')) do
    local lease = Leases.read(job.id, token)
    Leases.drop(job, token, now_ms, lease)
    call('HINCRBY', job_key(job.id), 'expired', 1)
    call('HINCRBY', PREFIX .. 'outcomes', 'expired', 1)
    if lease then Ranges.expire(job, lease) end
  end
end

function Leases.next_due(job, now_ms)
  local expires = earliest_score(job_key(job.id, 'leases'))
  if expires <= now_ms then expires = math.max(expires, Leases.grace_until(job, now_ms)) end
  return math.min(expires, earliest_score(job_key(job.id, 'retry')))
end

-- Return whether the job has max_running leases. Expired leases count only if they are kept.
function Leases.is_saturated(job, now_ms)
  if job.max_running == 0 then return false end
  local from = Leases.grace_until(job, now_ms) > 0 and '-inf' or '(' .. decimal(now_ms)
  return call('ZCOUNT', job_key(job.id, 'leases'), from, '+inf') >= job.max_running
end

function Leases.is_leasable(job, now_ms)
  local has_ranges = job.cursor < job.total or call('LLEN', job_key(job.id, 'free')) > 0
    or Leases.next_due(job, now_ms) <= now_ms
  return has_ranges and not Leases.is_saturated(job, now_ms)
end

-- Return the time at which more ranges can be leased.
function Leases.next_change(job, now_ms)
  if not Leases.is_saturated(job, now_ms) then return Leases.next_due(job, now_ms) end
  return math.max(earliest_score(job_key(job.id, 'leases')), Leases.grace_until(job, now_ms))
end

-- Update a job after the end of a lease that did not finish it.
function Leases.handle_end(job, now_ms)
  Jobs.settle(job, now_ms)
  if job.holders <= 0 then Queues.reschedule(job, now_ms) end
end

-- Write a lease and return the milliseconds that the caller must bill. `ms` is the estimated time on one lane. `more`
-- is true if the tenant uses an additional lane.
function Leases.grant(job, token, lo, hi, expiries, errors, ttl, lane, now_ms, ms, more)
  local lease = { lo = lo, hi = hi, upto = lo, expiries = expiries, errors = errors, granted = now_ms, lane = lane }
  if Tenants.are_registered() then
    lease.billed = math.min(math.ceil(ms), job.max_ms)
    if more then Tenants.occupy(job.tenant, token, now_ms, ttl) end
  end
  Leases.write(job.id, token, lease)
  call('ZADD', job_key(job.id, 'leases'), decimal(now_ms + ttl), token)
  if Programs.is_program(job) then
    call('SADD', PREFIX .. 'leased:' .. Leases.runner_of(lease), job.id .. '|' .. token)
  end
  return lease.billed or 0
end

-- Change a lease to the units from `lo` on, as if it were granted now.
function Leases.continue_from(job, token, lease, lo, now_ms)
  lease.lo, lease.upto, lease.expiries, lease.errors = lo, lo, 0, 0
  lease.granted, lease.billed = now_ms, lease.billed and 0
  local ttl = Leases.ttl(job)
  Leases.write(job.id, token, lease)
  call('ZADD', job_key(job.id, 'leases'), decimal(now_ms + ttl), token)
  if Tenants.are_registered() then call('ZADD', PREFIX .. 'lanes:' .. job.tenant, decimal(now_ms + ttl), token) end
end

-- End a lease. Return the job and the lease, or nil if the token is invalid or the lease starts at another unit than
-- `first` (if set).
function Leases.revoke(id, token, now_ms, first)
  local job = Jobs.find(id, Jobs.FOR_LEASE)
  local lease = job and Leases.read(id, token)
  if lease and first and lease.lo ~= first then return nil end
  if lease then
    Leases.drop(job, token, now_ms, lease)
    local spent = math.min(math.max(now_ms - lease.granted, 0), job.max_ms)
    if Tenants.are_registered() then Tenants.adjust_bill(job, lease, spent) end
  end
  return lease and job, lease
end
