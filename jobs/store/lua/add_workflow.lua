-- ADD_WORKFLOW id digest tenant token most_live most_bytes document name value ... -> {new|same|conflict|missing|live|full, number}
-- digest: of what was sent; an id follows from the idempotency key, so that a call that is repeated adds nothing.
local id, digest, of, token, most_live, most_bytes, document = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local known = call('HGET', P .. 'workflow:' .. id, 'digest')
if known then return { known == digest and 'same' or 'conflict', '0' } end
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing', '0' } end
local live = 0
for _, other in ipairs(call('SMEMBERS', P .. 'workflowslive')) do
  if call('HGET', P .. 'workflow:' .. other, 'tenant') == of then live = live + 1 end
end
if live >= most_live then return { 'live', num(live) } end
local stored = number_at('HGET', P .. 'workflowbytes', of)
if stored + #document > most_bytes then return { 'full', num(stored) } end
local t = now()
call('SET', P .. 'workflowdocument:' .. id, document)
call('HSET', P .. 'workflow:' .. id, 'digest', digest, 'tenant', of, 'token', token, 'state', 'running', 'attempt', 1,
  'created', num(t), 'bytes', #document, unpack(ARGV, 8))
call('HINCRBY', P .. 'workflowbytes', of, #document)
call('ZADD', P .. 'workflows', num(t), id)
call('ZADD', P .. 'workflows:' .. of, num(t), id)
call('SADD', P .. 'workflowslive', id)
call('SADD', P .. 'workflowsdue', id)
tell_workflow(id, 'running')
log_change(t, of, token, 'submit workflow', id, 'running')
return { 'new', '0' }
