-- Control of jobs by users and workflows.

-- CANCEL id tenant token [workflow attempt] -> {ok|conflict, state} | {missing} | {stale}
-- Cancel a job. Committed units are kept, and RETRY continues after them. `stale` means that this attempt of the
-- workflow is not being cancelled.
local function cancel(args)
  local id, tenant, token, workflow, attempt = unpack(args)
  local now_ms = now()
  if workflow and Workflows.state_in_attempt(workflow, attempt) ~= 'cancelling' then return { 'stale' } end
  local job = Jobs.find(id)
  if not job then return { 'missing' } end
  if job.state == 'cancelling' or job.state == 'cancelled' then return { 'ok', job.state } end
  if job.state ~= 'blocked' and job.state ~= 'queued' and job.state ~= 'running' and job.state ~= 'paused' then
    return { 'conflict', job.state }
  end
  Leases.reclaim(job, now_ms)
  if call('ZCARD', job_key(id, 'leases')) == 0 then
    Jobs.set_state(job, 'cancelled', now_ms)
  else
    Jobs.set_state(job, 'cancelling', now_ms)
    Queues.recheck_at(job, earliest_score(job_key(id, 'leases')))
    Leases.notify_holders(job)
  end
  Audit.log(now_ms, tenant, token, 'cancel', id, job.state)
  return { 'ok', job.state }
end

-- PAUSE id tenant token -> {ok|conflict, state} | {missing}
local function pause(args)
  local now_ms = now()
  local job = Jobs.find(args[1])
  if not job then return { 'missing' } end
  if job.state == 'paused' then return { 'ok', job.state } end
  if job.state ~= 'queued' and job.state ~= 'running' then return { 'conflict', job.state } end
  Jobs.set_state(job, 'paused', now_ms)
  call('ZREM', PREFIX .. 'recheck', job.id)
  Leases.notify_holders(job)
  Audit.log(now_ms, args[2], args[3], 'pause', job.id, job.state)
  return { 'ok', job.state }
end

-- RESUME id tenant token hold -> {ok|conflict, state} | {missing} | {over, cap, value, seconds}
-- `hold` is the same as in SUBMIT.
local function resume(args)
  local now_ms = now()
  local job = Jobs.find(args[1])
  if not job then return { 'missing' } end
  if job.state == 'queued' or job.state == 'running' then return { 'ok', job.state } end
  if job.state ~= 'paused' then return { 'conflict', job.state } end
  local refused = Tenants.are_registered() and Admission.check(job.tenant)
  if refused and args[4] ~= '1' then return refused end
  Leases.reclaim(job, now_ms)
  call('HSET', job_key(job.id), 'since', decimal(now_ms))
  if refused then Admission.put_in_backlog(job) end
  Jobs.set_state(job, job.started > 0 and not refused and 'running' or 'queued', now_ms)
  Jobs.settle(job, now_ms)
  Queues.reschedule(job, now_ms)
  Audit.log(now_ms, args[2], args[3], 'resume', job.id, job.state)
  return { 'ok', job.state }
end

register({
  { 'cancel', cancel, 'allow-oom' },
  { 'pause', pause, 'allow-oom' },
  { 'resume', resume, 'allow-oom' },
})
