-- Progress and end of leases.

--- Minimum milliseconds between two progress events of a job.
local PROGRESS_MS = 200
--- Maximum number of a program's units whose last failure is kept.
local FAILURES_KEPT = 1000

-- HEARTBEAT id token upto ttl -> 1 continue | 2 commit at the next chunk and stop | 0 drop the work
local function heartbeat(args)
  local id, token, upto, ttl = args[1], args[2], tonumber(args[3]), tonumber(args[4])
  local now_ms = now()
  local job = Jobs.find(id, Jobs.FOR_LEASE)
  local lease = job and Leases.read(id, token)
  -- If the clock was set back, earlier leases would last too long.
  if lease then lease.granted = math.min(lease.granted, now_ms) end
  if not lease or job.state == 'cancelling' or job.state == 'failed' then return 0 end
  if now_ms - lease.granted > job.max_ms then return 0 end
  if Programs.is_program(job) then ttl = PROGRAM_TTL_MS end
  if job.timeout_ms > 0 then Jobs.settle(job, now_ms) end
  if job.state == 'failed' then return 0 end
  if Tenants.are_registered() then
    call('ZADD', PREFIX .. 'lanes:' .. job.tenant, decimal(now_ms + ttl), token)
    Tenants.adjust_bill(job, lease, math.max(lease.billed or 0, now_ms - lease.granted))
  end
  lease.upto = math.max(lease.upto, math.min(upto, lease.hi))
  Leases.write(id, token, lease)
  call('ZADD', job_key(id, 'leases'), decimal(now_ms + ttl), token)
  return job.state == 'paused' and 2 or 1
end

-- Add a progress event, unless the last one is recent.
local function emit_progress(job, now_ms, worker)
  if math.abs(now_ms - job.progress_at) < PROGRESS_MS then return end
  Jobs.set(job, 'progress_at', decimal(now_ms))
  Jobs.save(job)
  Jobs.emit(job, 'progress', 'worker', worker)
end

-- COMMIT id token upto partial ms worker device pace device_ms mj keep lo -> {1 merged | 2 merged and finishing | 0
-- stale, parts}
-- `keep` = 1 continues upto..hi under the same token. `lo` is the partial's first unit, or ''. If `lo` is not the
-- lease's first unit, the call is stale: Redis lost a commit, or this call was already committed.
-- `device_ms` and `mj` are this lease's share of the time (0 if not shared) and energy ('' if unknown) of a shared
-- device.
-- `pace` is the lane's speed on this job relative to the kind's estimate. It is stored by kind, mode and device.
local function commit(args)
  local id, token, upto, partial, ms = args[1], args[2], tonumber(args[3]), args[4], tonumber(args[5])
  local worker, device, pace = args[6], args[7], tonumber(args[8])
  local device_ms, mj, keep, lo = tonumber(args[9]), tonumber(args[10]), args[11] == '1', tonumber(args[12])
  local now_ms = now()
  local job = Jobs.find(id, Jobs.FOR_LEASE)
  local lease = job and Leases.read(id, token)
  if lease and keep and lo and lo < lease.lo and upto <= lease.lo then
    return { 1, call('LLEN', job_key(id, 'parts')) }
  end
  if not lease or (lo and lo ~= lease.lo) then
    call('HINCRBY', PREFIX .. 'outcomes', 'stale', 1)
    return { 0, 0 }
  end
  keep = keep and upto < lease.hi
  if upto <= lease.lo or upto > lease.hi then
    local range = '(' .. decimal(lease.lo) .. ', ' .. decimal(lease.hi) .. ']'
    return redis.error_reply('COMMIT of ' .. decimal(upto) .. ' outside ' .. range)
  end
  if not keep then Leases.drop(job, token, now_ms, lease) end
  if Tenants.are_registered() then Tenants.adjust_bill(job, lease, ms) end
  if upto < lease.hi and not keep then call('LPUSH', job_key(id, 'free'), Ranges.format(upto, lease.hi, 0, 0)) end
  local parts = call('RPUSH', job_key(id, 'parts'), partial)
  job.done = job.done + (upto - lease.lo) -- in this order, because done + upto can exceed 2^53
  Jobs.set(job, 'done', decimal(job.done))
  Jobs.save(job)
  Usage.count_lease(job, lease, worker, device, upto - lease.lo, ms, now_ms)
  if keep then Leases.continue_from(job, token, lease, upto, now_ms) end
  local share = 'use|' .. device .. '|' .. worker .. '|'
  if device_ms > 0 then
    call('HINCRBY', job_key(id), share .. 'device_ms', decimal(device_ms))
    Usage.add(job, now_ms, 'device_ms', device_ms)
  end
  if mj then
    call('HINCRBY', job_key(id), share .. 'mj', decimal(mj))
    Usage.add(job, now_ms, 'mj', mj)
  end
  if pace > 0 then
    local field = job.kind .. '|' .. (call('HGET', job_key(id), 'mode') or '') .. '|' .. device
    local old = tonumber(call('HGET', PREFIX .. 'pace', field) or pace)
    if not old or not (old > 0 and old < math.huge) then old = pace end
    call('HSET', PREFIX .. 'pace', field, string.format('%.6g', old + (pace - old) / 4))
  end
  if now_ms < job.mark_at then
    call('HSET', job_key(id), 'mark_at', decimal(now_ms), 'mark_done', decimal(job.done))
  elseif now_ms - job.mark_at >= 2000 then
    local rate = (job.done - job.mark_done) * 1000 / (now_ms - job.mark_at)
    if job.rate > 0 then rate = (rate + job.rate) / 2 end
    call('HSET', job_key(id), 'rate', string.format('%.9g', rate), 'mark_at', decimal(now_ms), 'mark_done',
      decimal(job.done))
  end
  if Jobs.finish_if_complete(job, now_ms) then return { 2, parts } end
  if job.state == 'cancelled' then return { 1, parts } end
  Jobs.update_load(job)
  Jobs.save(job)
  emit_progress(job, now_ms, worker)
  Leases.handle_end(job, now_ms)
  return { 1, parts }
end

-- DONE1 id token result ms worker device marks device_ms -> 1 done | 0 dropped
-- Commit and finish a job that is covered by one lease. device_ms: as in COMMIT.
local function done1(args)
  local id, token, result, ms = args[1], args[2], args[3], tonumber(args[4])
  local worker, device, marks = args[5], args[6], args[7]
  local now_ms = now()
  local job = Jobs.find(id)
  local lease = job and Leases.read(id, token)
  if not lease then
    call('HINCRBY', PREFIX .. 'outcomes', 'stale', 1)
    return 0
  end
  if lease.hi - lease.lo < job.total then return redis.error_reply('DONE1 needs a lease of the whole job') end
  Leases.drop(job, token, now_ms, lease, true)
  if Tenants.are_registered() then Tenants.adjust_bill(job, lease, ms) end
  if job.state == 'cancelling' then
    call('LPUSH', job_key(id, 'free'), Ranges.format(lease.lo, lease.hi, 0, 0))
    Leases.handle_end(job, now_ms)
    return 0
  end
  job.done = job.total
  Jobs.set(job, 'done', decimal(job.done))
  call('SET', job_key(id, 'result'), result)
  if marks ~= '[]' then Results.keep_marks(marks) end
  Usage.count_lease(job, lease, worker, device, job.total, ms, now_ms, true)
  local device_ms = tonumber(args[8] or 0)
  if device_ms > 0 then
    Jobs.set(job, 'use|' .. device .. '|' .. worker .. '|device_ms', decimal(device_ms))
    Usage.add(job, now_ms, 'device_ms', device_ms)
  end
  if job.state ~= 'running' then Jobs.set_state(job, 'finishing', now_ms) end
  job.is_unindexed = call('ZREM', PREFIX .. 'recheck', id) == 1 -- jobs in ct:recheck are in no queue
  Jobs.set_state(job, 'done', now_ms)
  return 1
end

-- RELEASE id token -> 1 | 0
-- Return an uncomputed range.
local function release(args)
  local id, token = args[1], args[2]
  local now_ms = now()
  local job, lease = Leases.revoke(id, token, now_ms)
  if not lease then return 0 end
  call('LPUSH', job_key(id, 'free'), Ranges.format(lease.lo, lease.hi, lease.expiries, lease.errors))
  call('HINCRBY', PREFIX .. 'outcomes', 'released', 1)
  Leases.handle_end(job, now_ms)
  return 1
end

-- CRASH id token -> 1 | 0
-- Return a range whose lane died. This counts as an expiry unless the job is being cancelled, which kills lanes.
local function crash(args)
  local id, token = args[1], args[2]
  local now_ms = now()
  local job, lease = Leases.revoke(id, token, now_ms)
  if not lease then return 0 end
  if job.state == 'cancelling' then
    call('LPUSH', job_key(id, 'free'), Ranges.format(lease.lo, lease.hi, lease.expiries, lease.errors))
    call('HINCRBY', PREFIX .. 'outcomes', 'released', 1)
  else
    Ranges.expire(job, lease)
    call('HINCRBY', PREFIX .. 'outcomes', 'crashed', 1)
  end
  Leases.handle_end(job, now_ms)
  return 1
end

-- FAIL id token error jitter -> 1 | 0
-- Return a range whose kernel raised an error. The range is retried later, or is dead after too many errors.
local function fail(args)
  local id, token, text, jitter = args[1], args[2], args[3], tonumber(args[4])
  local now_ms = now()
  local job, lease = Leases.revoke(id, token, now_ms)
  if not lease then return 0 end
  call('HSET', job_key(id), 'error', text)
  call('HINCRBY', PREFIX .. 'outcomes', 'failed', 1)
  local errors = lease.errors + 1
  local piece = Ranges.format(lease.lo, lease.hi, lease.expiries, errors)
  if errors > SETTINGS.max_errors then
    Ranges.give_up(id, piece, text)
  else
    local wait = Ranges.backoff(errors) * (0.5 + jitter / 2)
    call('ZADD', job_key(id, 'retry'), decimal(now_ms + math.floor(wait)), piece)
  end
  Leases.handle_end(job, now_ms)
  return 1
end

-- FAIL_UNIT id token unit error most wait_ms row -> 1 | 0
-- Return a program's lease whose first unit failed. The unit is retried after wait_ms, or is dead after more than
-- `most` errors. The other units are leased next. `unit` is the failed unit, or ''; if it is not the lease's first
-- unit, the call is stale.
local function fail_unit(args)
  local id, token, unit, text, most, wait, row =
    args[1], args[2], tonumber(args[3]), args[4], tonumber(args[5]), tonumber(args[6]), args[7]
  local now_ms = now()
  local job, lease = Leases.revoke(id, token, now_ms, unit)
  if not lease then return 0 end
  local first = decimal(lease.lo)
  call('HSET', job_key(id), 'error', text)
  call('HINCRBY', PREFIX .. 'outcomes', 'failed', 1)
  if lease.hi - lease.lo > 1 then call('LPUSH', job_key(id, 'free'), Ranges.format(lease.lo + 1, lease.hi, 0, 0)) end
  local piece = Ranges.format(lease.lo, lease.lo + 1, lease.expiries, lease.errors + 1)
  if lease.errors + 1 > most then
    Ranges.give_up(id, piece, text)
  else
    call('ZADD', job_key(id, 'retry'), decimal(now_ms + wait), piece)
  end
  local failures = job_key(id, 'failures')
  if row ~= '' and (call('HLEN', failures) < FAILURES_KEPT or call('HEXISTS', failures, first) == 1) then
    call('HSET', failures, first, row)
  end
  if job.state == 'running' then emit_progress(job, now_ms, Leases.runner_of(lease)) end
  Leases.handle_end(job, now_ms)
  return 1
end

-- SPLIT id token at -> 1 | 0
-- Shorten a lease so that it ends before unit `at`. The other units are leased next.
local function split(args)
  local id, token, at = args[1], args[2], tonumber(args[3])
  local now_ms = now()
  local job = Jobs.find(id)
  local lease = job and Leases.read(id, token)
  if lease and at == lease.hi then return 1 end
  if not lease or at <= lease.lo or at > lease.hi then return 0 end
  call('LPUSH', job_key(id, 'free'), Ranges.format(at, lease.hi, 0, 0))
  local remaining = lease.hi - at
  lease.hi, lease.upto = at, math.min(lease.upto, at)
  Leases.write(id, token, lease)
  Leases.handle_end(job, now_ms)
  if job.holders > 0 and job.state == 'running' then
    Queues.notify_helpers(job, job.max_running > 0 and job.max_running - 1 or remaining)
  end
  return 1
end

register({
  { 'heartbeat', heartbeat, 'allow-oom' },
  { 'commit', commit, 'allow-oom' },
  { 'crash', crash, 'allow-oom' },
  { 'done1', done1, 'allow-oom' },
  { 'fail', fail, 'allow-oom' },
  { 'fail_unit', fail_unit, 'allow-oom' },
  { 'release', release, 'allow-oom' },
  { 'split', split, 'allow-oom' },
})
