-- SUBMIT id idem digest queue tenant hold most name value ... -> {new|same|conflict, id} | {over, cap, value, seconds, used}
--   | {artifact, id}: it needs one that is not there | {after | after_any, id}: it comes after a job that is not there
--   | {workflow, state}: it belongs to one that does not run, or anew, or whose action has a job.
--   | {taken, id}: a job of something else has this id.
-- hold: 1 puts the job into its tenant's backlog where a cap refuses it. most: jobs that may be queued in all; 0: any number.
local id, idem, digest, queue, owner, hold, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local MAX_SHAPES = 256 -- different requirements that may wait at once
local t = now()
local given = { state = 'queued', queue = queue, tenant = owner }
for i = 8, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
if idem ~= '' then
  local seen = call('GET', P .. 'idem:' .. idem)
  local known, body = string.match(seen or '', '^(.-)|(.*)$')
  if known and call('EXISTS', key(known)) == 1 then return { body == digest and 'same' or 'conflict', known } end
end
if given.workflow then
  local known = call('HMGET', P .. 'workflow:' .. given.workflow, 'state', 'attempt')
  local goes = known[1] == 'running' or known[1] == 'waiting'
  -- A coordinator of an earlier version gives no attempt.
  if not goes or (given.attempt or known[2]) ~= known[2] then return { 'workflow', known[1] or '' } end
  local there = call('HGET', P .. 'workflowjobs:' .. given.workflow, given.action)
  -- A job of it that was deleted is not submitted anew, whoever comes late.
  if there and (there ~= id or call('EXISTS', key(id)) == 0) then return { 'workflow', known[1] } end
end
local function is_own(names)
  for i, value in ipairs(call('HMGET', key(id), unpack(names))) do
    if (value or nil) ~= given[names[i]] then return false end
  end
  return true
end
if call('EXISTS', key(id)) == 1 then
  if (call('HGET', key(id), 'tenant') or 'default') ~= owner or not is_own({ 'workflow', 'action' }) then return { 'taken', id } end
  if given.workflow then call('HSETNX', P .. 'workflowjobs:' .. given.workflow, given.action, id) end
  return { 'same', id }
end
-- What it waits for, or nil: nothing.
local plan, unknown
if given.after or given.after_any then
  K = K or ties()
  plan, unknown = K.plan(id, owner, given)
  if unknown then return unknown end
  if plan.waits == 0 then plan = nil end
end
-- A tenant that has less than an equal part of what there may be of all is not kept out by others.
local function is_below_its_part(all, count)
  if not by_tenant() or not call('ZSCORE', P .. 'tenants', owner) then return false end
  return count() < all / call('ZCARD', P .. 'tenants')
end
local function own_jobs()
  local own = call('ZCARD', P .. 'admitted:' .. owner) + call('ZCARD', P .. 'backlog:' .. owner)
  return own + (plan and call('ZCARD', P .. 'blocked:' .. owner) or 0)
end
local function own_shapes() return call('ZCARD', P .. 'shapes:' .. owner) end
local function waiting() return call('ZCARD', P .. 'in:queued') + (plan and call('ZCARD', P .. 'in:blocked') or 0) end
if most > 0 and waiting() >= most and not is_below_its_part(most, own_jobs) then
  return { 'over', 'MAX_QUEUED', num(most), '1' }
end
local caps = by_tenant() and T.caps(owner)
local full = caps and caps.too_much(owner, ARGV, 8, t)
if full then return full end
local refused = not plan and by_tenant() and T.refusal(owner)
if refused and hold ~= '1' then return refused end
local some = given.requirements or ''
if some ~= '' and call('ZCARD', P .. 'shapes') >= MAX_SHAPES and not call('ZSCORE', P .. 'shapes', some)
    and not is_below_its_part(MAX_SHAPES, own_shapes) then
  return { 'over', 'requirements', num(MAX_SHAPES), '1' }
end
K = K or (given.notify and ties())
local untold = given.notify and K.refuses_webhook(owner)
if untold then return untold end
local artifacts = given.artifacts and cjson.decode(given.artifacts) or {}
for _, artifact in ipairs(artifacts) do
  if call('EXISTS', P .. 'holders:' .. owner .. ':' .. artifact) == 0 then return { 'artifact', artifact } end
end
if idem ~= '' then call('SET', P .. 'idem:' .. idem, id .. '|' .. digest, 'EX', 86400) end
local seq = call('INCR', P .. 'seq')
given.seq, given.created = seq, t
given.state = plan and 'blocked' or 'queued'
given.ties = (plan and 'p' or '') .. (given.workflow and 'w' or '') .. (given.notify and 'n' or '')
for _, artifact in ipairs(artifacts) do call('SADD', P .. 'holders:' .. owner .. ':' .. artifact, 'job:' .. id) end
count_shape(owner, some, 1)
local values = {}
for i, name in ipairs(FIELDS) do values[i] = given[name] or false end
local j, why = as_job(id, values)
if not j then return redis.error_reply('SUBMIT of a job that is none: ' .. why) end
in_hand = id
j.unsaved = { 'state', j.state, 'queue', queue, 'idem', idem, 'seq', num(seq), 'created', num(t), 'cursor', 0, 'done', 0,
  'accv', 0, 'holders', 0, 'lanes', 0, 'load', 0, 'tenant', owner, unpack(ARGV, 8) }
if j.ties ~= '' then set(j, 'ties', j.ties) end
j.deferred = 0
account(j)
save(j)
if given.notify then call('ZADD', P .. 'notifying', num(t), id) end
if given.workflow then call('HSET', P .. 'workflowjobs:' .. given.workflow, given.action, id) end
call('ZADD', P .. 'jobs', num(seq), id)
call('ZADD', P .. 'in:' .. j.state, num(seq), id)
if plan then
  K.begin(j, plan)
elseif refused then
  T.put_in_backlog(j)
else
  if by_tenant() then T.admit_or_dismiss(j, 'queued') end
  line_up(queue, owner, id, seq)
  level(queue)
  if by_tenant() and T.bars(owner) then T.ring_for_labelled(queue) end
end
weigh(owner, id)
call('HINCRBY', P .. 'submitted', given.kind, 1)
emit(j, j.state, 'queue', queue)
if plan and plan.root then K.skip(j, plan.root, t) end
-- Questions about jobs are reads.
if not string.find(queue, 'interactive', 1, true) then
  log_change(t, j.tenant, given.token or '', 'submit', id, j.state)
end
return { 'new', id }
