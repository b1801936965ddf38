-- ADD_WORKFLOW id idem before digest tenant token most_live most_bytes document name value ...
--   -> {new|same|conflict, id} | {taken|missing|live|full, number} | {over, cap, value, seconds, used}, as SUBMIT
-- idem: while the workflow of this idempotency key is there, the call adds nothing; empty: none. before: the id that the
-- key made in an earlier version. digest: of what was sent. taken: something else has the id.
local id, idem, before, digest, of, token = unpack(ARGV, 1, 6)
local most_live, most_bytes, document = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local function known_as(other)
  local known = call('HMGET', P .. 'workflow:' .. other, 'digest', 'tenant')
  if known[2] == of then return known[1] == digest and 'same' or 'conflict' end
  return known[2] and 'taken'
end
local seen = idem ~= '' and string.match(call('GET', P .. 'idem:' .. idem) or '', '^(.-)|')
for _, other in ipairs({ seen or id, before ~= '' and before or nil }) do
  local how = known_as(other)
  if how == 'same' or how == 'conflict' then return { how, other } end
end
if known_as(id) then return { 'taken', '0' } end
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing', '0' } end
local live = 0
for _, other in ipairs(call('SMEMBERS', P .. 'workflowslive')) do
  if call('HGET', P .. 'workflow:' .. other, 'tenant') == of then live = live + 1 end
end
if live >= most_live then return { 'live', num(live) } end
local stored = number_at('HGET', P .. 'workflowbytes', of)
if stored + #document > most_bytes then return { 'full', num(stored) } end
local most, all = most_stored(of), number_at('HGET', P .. 'stored', of)
if most and all + #document > most then return { 'over', 'max_stored_bytes', num(most), '3600', num(all) } end
for i = 10, #ARGV, 2 do
  if ARGV[i] == 'notify' then
    K = K or ties()
    local refused = K.refuses_webhook(of)
    if refused then return refused end
  end
end
local t = now()
if idem ~= '' then call('SET', P .. 'idem:' .. idem, id .. '|' .. digest) end
call('SET', P .. 'workflowdocument:' .. id, document)
call('HSET', P .. 'workflow:' .. id, 'digest', digest, 'tenant', of, 'token', token, 'state', 'running', 'attempt', 1,
  'created', num(t), 'bytes', #document, 'idem', idem, unpack(ARGV, 10))
call('HINCRBY', P .. 'workflowbytes', of, #document)
weigh_workflows(of)
call('ZADD', P .. 'workflows', num(t), id)
call('ZADD', P .. 'workflows:' .. of, num(t), id)
call('SADD', P .. 'workflowslive', id)
call('SADD', P .. 'workflowsdue', id)
tell_workflow(id, 'running')
log_change(t, of, token, 'submit workflow', id, 'running')
return { 'new', id }
