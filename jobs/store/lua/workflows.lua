-- Workflows. See docs/workflows.md.

-- Return the state of a workflow if this is its attempt, otherwise nil: the caller's plan is outdated.
function Workflows.state_in_attempt(id, attempt)
  local known = call('HMGET', PREFIX .. 'workflow:' .. id, 'state', 'attempt')
  return known[2] == attempt and known[1] or nil
end

-- Add an event that a workflow changed.
function Workflows.emit(id, state, owner)
  owner = owner or call('HGET', PREFIX .. 'workflow:' .. id, 'tenant')
  call('XADD', PREFIX .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'workflow', id, 'type', 'workflow', 'state', state,
    'tenant', owner)
end

-- Count bytes that a workflow stores in addition to its jobs.
function Workflows.add_bytes(id, tenant, bytes)
  call('HINCRBY', PREFIX .. 'workflow:' .. id, 'bytes', decimal(bytes))
  call('HINCRBY', PREFIX .. 'workflowbytes', tenant, decimal(bytes))
  Caps.update_workflows_size(tenant)
end

-- Remove the outcomes of these actions, words[first] to words[last].
function Workflows.forget_actions(id, tenant, words, first, last)
  local freed = 0
  for from = first, last, 1000 do
    local some = { unpack(words, from, math.min(from + 999, last)) }
    for _, record in ipairs(call('HMGET', PREFIX .. 'workflowrecords:' .. id, unpack(some))) do
      freed = freed + #(record or '')
    end
    call('HDEL', PREFIX .. 'workflowjobs:' .. id, unpack(some))
    call('HDEL', PREFIX .. 'workflowrecords:' .. id, unpack(some))
  end
  if freed > 0 then Workflows.add_bytes(id, tenant, -freed) end
end

-- ADD_WORKFLOW id idem digest tenant token most_live most_bytes document name value ... -> {new|same|conflict, id} |
-- {taken|missing|live|full, number} | {over, cap, value, seconds, used}
-- Add a workflow. If the workflow of the idempotency key `idem` exists, nothing is added. `digest` is the digest of the
-- request. `taken` means that the ID belongs to another tenant or workflow.
local function add_workflow(args)
  local id, idem, digest, tenant, token = unpack(args, 1, 5)
  local most_live, most_bytes, document = tonumber(args[6]), tonumber(args[7]), args[8]
  local function compare(other)
    local known = call('HMGET', PREFIX .. 'workflow:' .. other, 'digest', 'tenant')
    if known[2] == tenant then return known[1] == digest and 'same' or 'conflict' end
    return known[2] and 'taken'
  end
  local seen = idem ~= '' and string.match(call('GET', PREFIX .. 'idem:' .. idem) or '', '^(.-)|')
  local how = compare(seen or id)
  if how == 'same' or how == 'conflict' then return { how, seen or id } end
  if compare(id) then return { 'taken', '0' } end
  if tenant ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', tenant) then return { 'missing', '0' } end
  local live = 0
  for _, other in ipairs(call('SMEMBERS', PREFIX .. 'workflowslive')) do
    if call('HGET', PREFIX .. 'workflow:' .. other, 'tenant') == tenant then live = live + 1 end
  end
  if live >= most_live then return { 'live', decimal(live) } end
  local stored = read_number('HGET', PREFIX .. 'workflowbytes', tenant)
  if stored + #document > most_bytes then return { 'full', decimal(stored) } end
  local most, all = Caps.max_stored_bytes(tenant), read_number('HGET', PREFIX .. 'stored', tenant)
  if most and all + #document > most then return { 'over', 'max_stored_bytes', decimal(most), '3600', decimal(all) } end
  for i = 9, #args, 2 do
    if args[i] == 'notify' then
      local refused = Webhooks.check(tenant)
      if refused then return refused end
    end
  end
  local now_ms = now()
  if idem ~= '' then call('SET', PREFIX .. 'idem:' .. idem, id .. '|' .. digest) end
  call('SET', PREFIX .. 'workflowdocument:' .. id, document)
  call('HSET', PREFIX .. 'workflow:' .. id, 'digest', digest, 'tenant', tenant, 'token', token, 'state', 'running',
    'attempt', 1, 'created', decimal(now_ms), 'bytes', #document, 'idem', idem, unpack(args, 9))
  call('HINCRBY', PREFIX .. 'workflowbytes', tenant, #document)
  Caps.update_workflows_size(tenant)
  call('ZADD', PREFIX .. 'workflows', decimal(now_ms), id)
  call('ZADD', PREFIX .. 'workflows:' .. tenant, decimal(now_ms), id)
  call('SADD', PREFIX .. 'workflowslive', id)
  call('SADD', PREFIX .. 'workflowsdue', id)
  Workflows.emit(id, 'running')
  Audit.log(now_ms, tenant, token, 'submit workflow', id, 'running')
  return { 'new', id }
end

-- CANCEL_WORKFLOW id tenant token -> {ok|conflict, state} | {missing}
-- The leader then cancels its jobs.
local function cancel_workflow(args)
  local id, tenant, token = args[1], args[2], args[3]
  local state = call('HGET', PREFIX .. 'workflow:' .. id, 'state')
  if not state then return { 'missing' } end
  if state == 'cancelling' or state == 'cancelled' then return { 'ok', state } end
  if state ~= 'running' and state ~= 'waiting' then return { 'conflict', state } end
  call('HSET', PREFIX .. 'workflow:' .. id, 'state', 'cancelling')
  call('HDEL', PREFIX .. 'workflow:' .. id, 'waits')
  call('SADD', PREFIX .. 'workflowsdue', id)
  Workflows.emit(id, 'cancelling')
  Audit.log(now(), tenant, token, 'cancel workflow', id, 'cancelling')
  return { 'ok', 'cancelling' }
end

-- DECIDE_WORKFLOW id attempt action record approve|reject tenant token -> {ok|conflict, state} | {missing}
-- Approve or reject an action. A repeated call changes nothing.
local function decide_workflow(args)
  local id, attempt, action = args[1], args[2], args[3]
  local known = call('HMGET', PREFIX .. 'workflow:' .. id, 'state', 'attempt', 'tenant')
  if not known[1] then return { 'missing' } end
  if call('HEXISTS', PREFIX .. 'workflowrecords:' .. id, action) == 1 then return { 'ok', known[1] } end
  if (known[1] ~= 'running' and known[1] ~= 'waiting') or known[2] ~= attempt then return { 'conflict', known[1] } end
  call('HSET', PREFIX .. 'workflowrecords:' .. id, action, args[4])
  Workflows.add_bytes(id, known[3], #args[4])
  call('HSET', PREFIX .. 'workflow:' .. id, 'state', 'running')
  call('SADD', PREFIX .. 'workflowsdue', id)
  Workflows.emit(id, 'running')
  Audit.log(now(), args[6], args[7], args[5], id .. '/' .. action, 'ok')
  return { 'ok', 'running' }
end

-- RETRY_WORKFLOW id attempt tenant token retried forgotten key ... -> {ok|conflict, state} | {missing}
-- The first `retried` keys name actions whose jobs are retried. The next `forgotten` keys name actions that are
-- submitted again.
local function retry_workflow(args)
  local id, attempt, tenant, token = args[1], args[2], args[3], args[4]
  local retried, forgotten = tonumber(args[5]), tonumber(args[6])
  local key = PREFIX .. 'workflow:' .. id
  local known = call('HMGET', key, 'state', 'attempt', 'tenant')
  if not known[1] then return { 'missing' } end
  if known[1] == 'running' or known[1] == 'waiting' then return { 'ok', known[1] } end
  if (known[1] ~= 'failed' and known[1] ~= 'cancelled') or known[2] ~= attempt then return { 'conflict', known[1] } end
  for first = 7, 6 + retried, 1000 do
    call('SADD', PREFIX .. 'workflowretries:' .. id, unpack(args, first, math.min(first + 999, 6 + retried)))
  end
  Workflows.forget_actions(id, known[3], args, 7 + retried, 6 + retried + forgotten)
  call('HSET', key, 'state', 'running')
  call('HINCRBY', key, 'attempt', 1)
  call('HDEL', key, 'ended', 'waits', 'error')
  call('ZREM', PREFIX .. 'workflowexpiry', id)
  call('SADD', PREFIX .. 'workflowslive', id)
  call('SADD', PREFIX .. 'workflowsdue', id)
  Workflows.emit(id, 'running')
  Audit.log(now(), tenant, token, 'retry workflow', id, 'running')
  return { 'ok', 'running' }
end

-- DELETE_WORKFLOW id tenant token -> {ok|conflict, state} | {missing}
-- Delete a workflow. Its jobs remain until they expire. `token` is '*' if the workflow has expired.
local function delete_workflow(args)
  local id, tenant, token = args[1], args[2], args[3]
  local known = call('HMGET', PREFIX .. 'workflow:' .. id, 'state', 'tenant', 'bytes', 'idem')
  local state, owner = known[1], known[2]
  call('ZREM', PREFIX .. 'workflowexpiry', id)
  if not state then
    call('ZREM', PREFIX .. 'workflows', id)
    return { 'missing' }
  end
  if state ~= 'done' and state ~= 'failed' and state ~= 'cancelled' then return { 'conflict', state } end
  local idem = known[4] or ''
  local key = PREFIX .. 'idem:' .. idem
  if idem ~= '' and string.match(call('GET', key) or '', '^(.-)|') == id then call('DEL', key) end
  call('DEL', PREFIX .. 'workflow:' .. id, PREFIX .. 'workflowdocument:' .. id, PREFIX .. 'workflowretries:' .. id)
  call('UNLINK', PREFIX .. 'workflowjobs:' .. id, PREFIX .. 'workflowrecords:' .. id)
  call('ZREM', PREFIX .. 'workflows', id)
  call('ZREM', PREFIX .. 'workflows:' .. owner, id)
  call('SREM', PREFIX .. 'workflowslive', id)
  if call('HINCRBY', PREFIX .. 'workflowbytes', owner, decimal(-(tonumber(known[3] or 0) or 0))) <= 0 then
    call('HDEL', PREFIX .. 'workflowbytes', owner)
  end
  Caps.update_workflows_size(owner)
  Workflows.emit(id, 'deleted', owner)
  if token ~= '*' then Audit.log(now(), tenant, token, 'delete workflow', id, state) end
  return { 'ok', state }
end

-- TAKE_WORKFLOWS most -> ids
-- Return workflows that the leader processes next. Until they are processed, they are in ct:workflowstaken, where the
-- next leader finds them if this one dies.
local function take_workflows(args)
  local some = call('SPOP', PREFIX .. 'workflowsdue', args[1])
  if #some > 0 then call('SADD', PREFIX .. 'workflowstaken', unpack(some)) end
  return some
end

-- RECORD_ACTION id attempt key record -> 1 / 0: the workflow is not running this attempt
-- Record the outcome of an action without a job.
local function record_action(args)
  local id, attempt, name = args[1], args[2], args[3]
  local known = call('HMGET', PREFIX .. 'workflow:' .. id, 'state', 'attempt', 'tenant')
  if (known[1] ~= 'running' and known[1] ~= 'waiting') or known[2] ~= attempt then return 0 end
  if call('HEXISTS', PREFIX .. 'workflowjobs:' .. id, name) == 1 then return 0 end
  if call('HSETNX', PREFIX .. 'workflowrecords:' .. id, name, args[4]) == 1 then
    Workflows.add_bytes(id, known[3], #args[4])
  end
  return 1
end

-- FORGET_ACTIONS id attempt key ... -> 1 / 0: the workflow is not running this attempt
-- Remove the outcomes of actions, which then start again. Jobs of these actions that cannot continue remain as separate
-- jobs. If the workflow is being cancelled, the actions start again when it is retried.
local function forget_some(args)
  local id, attempt = args[1], args[2]
  local state = Workflows.state_in_attempt(id, attempt)
  if state ~= 'running' and state ~= 'waiting' and state ~= 'cancelling' then return 0 end
  Workflows.forget_actions(id, call('HGET', PREFIX .. 'workflow:' .. id, 'tenant'), args, 3, #args)
  return 1
end

-- RETRIED_ACTIONS id attempt key ... -> 1 / 0: the workflow is in another attempt
-- Record that the jobs of these actions were retried.
local function retried_actions(args)
  if not Workflows.state_in_attempt(args[1], args[2]) then return 0 end
  for first = 3, #args, 1000 do
    call('SREM', PREFIX .. 'workflowretries:' .. args[1], unpack(args, first, math.min(first + 999, #args)))
  end
  return 1
end

-- SETTLE_WORKFLOW id state attempt new ttl count job state ... name value ... -> 1 / 0: the state of the workflow, or
-- of one of these `count` jobs, has changed
-- Store the leader's evaluation. `ttl` is the milliseconds for which an ended workflow is kept. When the workflow ends,
-- add the delivery of its webhook.
local function settle_workflow(args)
  local id, was, attempt, state, ttl = args[1], args[2], args[3], args[4], tonumber(args[5])
  local key = PREFIX .. 'workflow:' .. id
  local known = call('HMGET', key, 'state', 'attempt', 'counts')
  if known[1] ~= was or known[2] ~= attempt then return 0 end
  local first = 7 + 2 * tonumber(args[6])
  for i = 7, first - 1, 2 do
    if call('HGET', job_key(args[i]), 'state') ~= args[i + 1] then return 0 end
  end
  local ended = state == 'done' or state == 'failed' or state == 'cancelled'
  local before, now_ms = known[3], now()
  local function notify_receiver()
    local row = call('HMGET', key, 'notify', 'tenant', 'name', 'error')
    if not row[1] then return end
    local ends = decimal(call('HINCRBY', key, 'notifications', 1))
    local name = Webhooks.id_of('workflow', id, decimal(now_ms), ends)
    Webhooks.add(name, row[2], row[1], now_ms, 'type', 'workflow.' .. state, 'workflow', id, 'name', row[3] or '',
      'error', string.sub(row[4] or '', 1, 2000))
  end
  call('HSET', key, 'state', state, unpack(args, first))
  if ended and state ~= was then
    call('HSET', key, 'ended', decimal(now_ms))
    notify_receiver()
    call('ZADD', PREFIX .. 'workflowexpiry', decimal(now_ms + ttl), id)
    call('SREM', PREFIX .. 'workflowslive', id)
    call('DEL', PREFIX .. 'workflowretries:' .. id)
  elseif not ended and call('HDEL', key, 'ended') == 1 then
    call('ZREM', PREFIX .. 'workflowexpiry', id)
    call('SADD', PREFIX .. 'workflowslive', id)
  end
  if state ~= was or before ~= call('HGET', key, 'counts') then
    call('HSET', key, 'changed', decimal(now_ms))
    Workflows.emit(id, state)
  end
  return 1
end

register({
  { 'add_workflow', add_workflow },
  { 'decide_workflow', decide_workflow },
  { 'cancel_workflow', cancel_workflow, 'allow-oom' },
  { 'delete_workflow', delete_workflow, 'allow-oom' },
  { 'forget_actions', forget_some, 'allow-oom' },
  { 'record_action', record_action },
  { 'retried_actions', retried_actions, 'allow-oom' },
  { 'retry_workflow', retry_workflow, 'allow-oom' },
  { 'settle_workflow', settle_workflow, 'allow-oom' },
  { 'take_workflows', take_workflows, 'allow-oom' },
})
