-- SUBMIT: stores a job.

--- Maximum number of different requirements among unfinished jobs.
local MAX_SHAPES = 256
local IDEMPOTENCY_SECONDS = '86400'

-- Return {same | conflict, id} for the job of an idempotency key, or nil if it does not exist.
local function find_by_key(idem, digest)
  local known, body = string.match(call('GET', PREFIX .. 'idem:' .. idem) or '', '^(.-)|(.*)$')
  if known and call('EXISTS', job_key(known)) == 1 then return { body == digest and 'same' or 'conflict', known } end
end

-- Return nil if the workflow accepts the job, otherwise {workflow, state}.
local function check_workflow(id, fields)
  local known = call('HMGET', PREFIX .. 'workflow:' .. fields.workflow, 'state', 'attempt')
  local is_running = known[1] == 'running' or known[1] == 'waiting'
  if not is_running or fields.attempt ~= known[2] then return { 'workflow', known[1] or '' } end
  local other = call('HGET', PREFIX .. 'workflowjobs:' .. fields.workflow, fields.action)
  -- A deleted job of the workflow is not submitted again, even if the call arrives late.
  if other and (other ~= id or call('EXISTS', job_key(id)) == 0) then return { 'workflow', known[1] } end
end

-- Return the reply for an existing ID: {same, id}, or {taken, id} if it belongs to a different job.
local function find_by_id(id, tenant, fields)
  local known = call('HMGET', job_key(id), 'tenant', 'workflow', 'action')
  local is_own = (known[2] or nil) == fields.workflow and (known[3] or nil) == fields.action
  if known[1] ~= tenant or not is_own then return { 'taken', id } end
  if fields.workflow then call('HSETNX', PREFIX .. 'workflowjobs:' .. fields.workflow, fields.action, id) end
  return { 'same', id }
end

-- Return whether a tenant uses less than an equal share of a limit of the cluster. Then, other tenants cannot exclude
-- it.
local function is_below_fair_share(tenant, all, count)
  if not Tenants.are_registered() or not call('ZSCORE', PREFIX .. 'tenants', tenant) then return false end
  return count < all / call('ZCARD', PREFIX .. 'tenants')
end

local function count_jobs(tenant, plan)
  local own = call('ZCARD', PREFIX .. 'admitted:' .. tenant) + call('ZCARD', PREFIX .. 'backlog:' .. tenant)
  return own + (plan and call('ZCARD', PREFIX .. 'blocked:' .. tenant) or 0)
end

-- Return nil if the cluster accepts another job, otherwise {over, limit, its value, seconds}.
local function check_cluster(tenant, fields, plan, most)
  if most > 0 then
    local waiting = call('ZCARD', PREFIX .. 'in:queued') + (plan and call('ZCARD', PREFIX .. 'in:blocked') or 0)
    if waiting >= most and not is_below_fair_share(tenant, most, count_jobs(tenant, plan)) then
      return { 'over', 'MAX_QUEUED', decimal(most), '1' }
    end
  end
  local requirements = fields.requirements
  if not requirements or call('ZCARD', PREFIX .. 'shapes') < MAX_SHAPES then return nil end
  if call('ZSCORE', PREFIX .. 'shapes', requirements) then return nil end
  if is_below_fair_share(tenant, MAX_SHAPES, call('ZCARD', PREFIX .. 'shapes:' .. tenant)) then return nil end
  return { 'over', 'requirements', decimal(MAX_SHAPES), '1' }
end

-- Return the new job with all its fields to be saved, or nil and the reason why they are invalid.
local function new_job(id, idem, fields, args, now_ms)
  local seq = call('INCR', PREFIX .. 'seq')
  fields.seq, fields.created = seq, now_ms
  local job, why = Jobs.new(id, fields)
  if not job then return nil, why end
  -- Frequently read fields come first, because Redis scans small hashes from the start.
  job.unsaved = { 'state', job.state, 'queue', job.queue, 'tenant', job.tenant, 'seq', decimal(seq), 'created',
    decimal(now_ms), 'cursor', '0', 'done', '0', 'load', '0', 'idem', idem, 'holders', '0', 'lanes', '0',
    unpack(args, 8) }
  if job.relations ~= '' then Jobs.set(job, 'relations', job.relations) end
  return job
end

-- Add a new job to the index in which it waits.
local function enqueue_new(job, plan, refused)
  if plan then
    Dependencies.store(job, plan)
  elseif refused then
    Admission.put_in_backlog(job)
  else
    if Tenants.are_registered() then Admission.update(job, 'queued') end
    Queues.enqueue(job.queue, job.tenant, job.id, job.seq)
    Queues.adjust_wakeups(job.queue, 1)
    if Tenants.are_registered() and Tenants.excludes(job.tenant) then Tenants.notify_idle_workers(job.queue) end
  end
end

-- SUBMIT id idem digest queue tenant hold most name value ... -> {new|same|conflict, id} | {over, cap, value, seconds,
-- used} | {artifact, id} | {after | after_any, id} | {workflow, state} | {taken, id}
-- `hold` = 1 puts the job into its tenant's backlog if a cap rejects it. `most` is the limit of queued jobs in the
-- cluster, 0 for none. artifact, after and after_any name a missing object. `workflow` means that the workflow is not
-- running this attempt, or that its action has a job. `taken` means that another job has this ID.
local function submit(args)
  local id, idem, digest, queue, tenant, hold = unpack(args, 1, 6)
  local most = tonumber(args[7])
  local now_ms = now()
  local fields = { queue = queue, tenant = tenant }
  for i = 8, #args, 2 do fields[args[i]] = args[i + 1] end
  local answer = idem ~= '' and find_by_key(idem, digest) or fields.workflow and check_workflow(id, fields)
  if answer then return answer end
  -- Usually, none of these keys exists, and one call checks all of them.
  if call('EXISTS', job_key(id), PREFIX .. 'damaged', PREFIX .. 'shares') > 0 then
    if call('EXISTS', job_key(id)) == 1 then return find_by_id(id, tenant, fields) end
    local refused = Repairs.check()
    if refused then return refused end
  else
    State.tenants_exist = false
  end
  local plan, unknown
  if fields.after or fields.after_any then
    plan, unknown = Dependencies.plan(id, tenant, fields)
    if unknown then return unknown end
    if plan.waits == 0 then plan = nil end
  end
  local refusal = check_cluster(tenant, fields, plan, most)
    or Tenants.are_registered() and Tenants.has_caps(tenant) and Caps.check_stored_bytes(tenant, args, 8, now_ms)
  if refusal then return refusal end
  local refused = not plan and Tenants.are_registered() and Admission.check(tenant)
  if refused and hold ~= '1' then return refused end
  local webhook_refusal = fields.notify and Webhooks.check(tenant)
  if webhook_refusal then return webhook_refusal end
  local artifacts = fields.artifacts and cjson.decode(fields.artifacts) or {}
  for _, artifact in ipairs(artifacts) do
    if call('EXISTS', PREFIX .. 'holders:' .. tenant .. ':' .. artifact) == 0 then return { 'artifact', artifact } end
  end
  if State.is_redis_full then return refuse_growth() end

  if idem ~= '' then call('SET', PREFIX .. 'idem:' .. idem, id .. '|' .. digest, 'EX', IDEMPOTENCY_SECONDS) end
  for _, artifact in ipairs(artifacts) do
    call('SADD', PREFIX .. 'holders:' .. tenant .. ':' .. artifact, 'job:' .. id)
  end
  Programs.count_shape(tenant, fields.requirements or '', 1)
  fields.state = plan and 'blocked' or 'queued'
  fields.relations = (plan and 'p' or '') .. (fields.workflow and 'w' or '') .. (fields.notify and 'n' or '')
  local job, why = new_job(id, idem, fields, args, now_ms)
  if not job then return redis.error_reply('SUBMIT of an invalid job: ' .. why) end
  State.job_id = id
  Jobs.update_load(job)
  Jobs.save(job)
  if fields.workflow then call('HSET', PREFIX .. 'workflowjobs:' .. fields.workflow, fields.action, id) end
  call('ZADD', PREFIX .. 'jobs', decimal(job.seq), id)
  call('ZADD', PREFIX .. 'in:' .. job.state, decimal(job.seq), id)
  enqueue_new(job, plan, refused)
  Caps.update_job_size(tenant, id)
  call('HINCRBY', PREFIX .. 'submitted', job.kind, '1')
  Jobs.emit(job, job.state, 'queue', queue)
  if plan and plan.root then Dependencies.skip(job, plan.root, now_ms) end
  -- Interactive jobs answer questions; the audit log counts them as reads.
  if Queues.class_of(queue) ~= 'interactive' then
    Audit.log(now_ms, tenant, fields.token or '', 'submit', id, job.state)
  end
  return { 'new', id }
end

-- SUBMIT_WHEN_FULL: SUBMIT on a full Redis. It adds no job.
local function submit_when_full(args)
  State.is_redis_full = true
  return submit(args)
end

register({
  { 'submit', submit },
  { 'submit_when_full', submit_when_full, 'allow-oom' },
})
