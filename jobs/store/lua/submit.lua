-- SUBMIT: writes a job.

--- Different requirements that may wait at once.
local MAX_SHAPES = 256
local IDEMPOTENCY_SECONDS = 86400

-- The job of an idempotency key, if it is still there: {same | conflict, id}, or nil.
local function answer_of_key(idem, digest)
  local known, body = string.match(call('GET', PREFIX .. 'idem:' .. idem) or '', '^(.-)|(.*)$')
  if known and call('EXISTS', job_key(known)) == 1 then return { body == digest and 'same' or 'conflict', known } end
end

-- Why a workflow does not take a job: {workflow, state}, or nil.
local function refusal_of_workflow(id, given)
  local known = call('HMGET', PREFIX .. 'workflow:' .. given.workflow, 'state', 'attempt')
  local is_running = known[1] == 'running' or known[1] == 'waiting'
  if not is_running or given.attempt ~= known[2] then return { 'workflow', known[1] or '' } end
  local other = call('HGET', PREFIX .. 'workflowjobs:' .. given.workflow, given.action)
  -- A job of it that was deleted is not submitted again, however late a call comes.
  if other and (other ~= id or call('EXISTS', job_key(id)) == 0) then return { 'workflow', known[1] } end
end

-- The answer for an id that is there: {same, id}, or {taken, id} for a job of something else.
local function answer_of_id(id, owner, given)
  local known = call('HMGET', job_key(id), 'tenant', 'workflow', 'action')
  local is_own = (known[2] or nil) == given.workflow and (known[3] or nil) == given.action
  if known[1] ~= owner or not is_own then return { 'taken', id } end
  if given.workflow then call('HSETNX', PREFIX .. 'workflowjobs:' .. given.workflow, given.action, id) end
  return { 'same', id }
end

-- A tenant that has less than an equal part of what there may be of all is not kept out by others.
local function is_below_its_part(owner, all, count)
  if not Tenants.exist() or not call('ZSCORE', PREFIX .. 'tenants', owner) then return false end
  return count < all / call('ZCARD', PREFIX .. 'tenants')
end

local function own_jobs(owner, plan)
  local own = call('ZCARD', PREFIX .. 'admitted:' .. owner) + call('ZCARD', PREFIX .. 'backlog:' .. owner)
  return own + (plan and call('ZCARD', PREFIX .. 'blocked:' .. owner) or 0)
end

-- Why the cluster takes no further job: {over, limit, its value, seconds}, or nil.
local function refusal_of_cluster(owner, given, plan, most)
  if most > 0 then
    local waiting = call('ZCARD', PREFIX .. 'in:queued') + (plan and call('ZCARD', PREFIX .. 'in:blocked') or 0)
    if waiting >= most and not is_below_its_part(owner, most, own_jobs(owner, plan)) then
      return { 'over', 'MAX_QUEUED', decimal(most), '1' }
    end
  end
  local requirements = given.requirements
  if not requirements or call('ZCARD', PREFIX .. 'shapes') < MAX_SHAPES then return nil end
  if call('ZSCORE', PREFIX .. 'shapes', requirements) then return nil end
  if is_below_its_part(owner, MAX_SHAPES, call('ZCARD', PREFIX .. 'shapes:' .. owner)) then return nil end
  return { 'over', 'requirements', decimal(MAX_SHAPES), '1' }
end

-- The new job, with all its fields to be saved. Returns why it is none, if it is not.
local function new_job(id, idem, given, args, now_ms)
  local seq = call('INCR', PREFIX .. 'seq')
  given.seq, given.created = seq, now_ms
  local job, why = Jobs.new(id, given)
  if not job then return nil, why end
  -- What every function reads is first: Redis looks for it from the beginning of a hash.
  job.unsaved = { 'state', job.state, 'queue', job.queue, 'tenant', job.tenant, 'seq', decimal(seq), 'created',
    decimal(now_ms), 'cursor', '0', 'done', '0', 'load', '0', 'idem', idem, 'holders', '0', 'lanes', '0',
    unpack(args, 8) }
  if job.ties ~= '' then Jobs.set(job, 'ties', job.ties) end
  return job
end

-- Puts a new job where it waits.
local function place(job, plan, refused)
  if plan then
    Dependencies.begin(job, plan)
  elseif refused then
    Admission.put_in_backlog(job)
  else
    if Tenants.exist() then Admission.update(job, 'queued') end
    Queues.line_up(job.queue, job.tenant, job.id, job.seq)
    Queues.level(job.queue, 1)
    if Tenants.exist() and Tenants.bars(job.tenant) then Tenants.ring_for_labelled(job.queue) end
  end
end

-- SUBMIT id idem digest queue tenant hold most name value ... -> {new|same|conflict, id} | {over, cap, value, seconds,
-- used}
--   | {artifact, id}: it needs one that is not there | {after | after_any, id}: it comes after a job that is not there
--   | {workflow, state}: it belongs to one that does not run, or anew, or whose action has a job.
--   | {taken, id}: a job of something else has this id. hold: 1 puts the job into its tenant's backlog if a cap
-- refuses it. most: jobs that may be queued in all; 0: any number.
local function submit(args)
  local id, idem, digest, queue, owner, hold = unpack(args, 1, 6)
  local most = tonumber(args[7])
  local now_ms = now()
  local given = { queue = queue, tenant = owner }
  for i = 8, #args, 2 do given[args[i]] = args[i + 1] end
  local answer = idem ~= '' and answer_of_key(idem, digest) or given.workflow and refusal_of_workflow(id, given)
  if answer then return answer end
  -- Most often none of these is there: one call says so.
  if call('EXISTS', job_key(id), PREFIX .. 'damaged', PREFIX .. 'shares') > 0 then
    if call('EXISTS', job_key(id)) == 1 then return answer_of_id(id, owner, given) end
    local refused = Repairs.refusal()
    if refused then return refused end
  else
    State.tenants_exist = false
  end
  local plan, unknown
  if given.after or given.after_any then
    plan, unknown = Dependencies.plan(id, owner, given)
    if unknown then return unknown end
    if plan.waits == 0 then plan = nil end
  end
  local refusal = refusal_of_cluster(owner, given, plan, most)
    or Tenants.exist() and Tenants.has_caps(owner) and Caps.too_much(owner, args, 8, now_ms)
  if refusal then return refusal end
  local refused = not plan and Tenants.exist() and Admission.refusal(owner)
  if refused and hold ~= '1' then return refused end
  local untold = given.notify and Webhooks.refusal(owner)
  if untold then return untold end
  local artifacts = given.artifacts and cjson.decode(given.artifacts) or {}
  for _, artifact in ipairs(artifacts) do
    if call('EXISTS', PREFIX .. 'holders:' .. owner .. ':' .. artifact) == 0 then return { 'artifact', artifact } end
  end
  if State.is_full then return refuse_growth() end

  if idem ~= '' then call('SET', PREFIX .. 'idem:' .. idem, id .. '|' .. digest, 'EX', IDEMPOTENCY_SECONDS) end
  for _, artifact in ipairs(artifacts) do
    call('SADD', PREFIX .. 'holders:' .. owner .. ':' .. artifact, 'job:' .. id)
  end
  Programs.count_shape(owner, given.requirements or '', 1)
  given.state = plan and 'blocked' or 'queued'
  given.ties = (plan and 'p' or '') .. (given.workflow and 'w' or '') .. (given.notify and 'n' or '')
  local job, why = new_job(id, idem, given, args, now_ms)
  if not job then return redis.error_reply('SUBMIT of a job that is none: ' .. why) end
  State.job_id = id
  Jobs.account(job)
  Jobs.save(job)
  if given.workflow then call('HSET', PREFIX .. 'workflowjobs:' .. given.workflow, given.action, id) end
  call('ZADD', PREFIX .. 'jobs', decimal(job.seq), id)
  call('ZADD', PREFIX .. 'in:' .. job.state, decimal(job.seq), id)
  place(job, plan, refused)
  Caps.weigh_job(owner, id)
  call('HINCRBY', PREFIX .. 'submitted', job.kind, 1)
  Jobs.emit(job, job.state, 'queue', queue)
  if plan and plan.root then Dependencies.skip(job, plan.root, now_ms) end
  -- Questions about jobs are reads.
  if Queues.class_of(queue) ~= 'interactive' then
    Audit.log(now_ms, owner, given.token or '', 'submit', id, job.state)
  end
  return { 'new', id }
end

-- Does the same in a full Redis, which takes no new job.
local function submit_when_full(args)
  State.is_full = true
  return submit(args)
end

register({
  { 'submit', submit },
  { 'submit_when_full', submit_when_full, 'allow-oom' },
})
