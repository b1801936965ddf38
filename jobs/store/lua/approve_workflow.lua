-- APPROVE_WORKFLOW id attempt action record tenant token -> {ok|conflict, state} | {missing}. The second call changes nothing.
local id, attempt, action = ARGV[1], ARGV[2], ARGV[3]
local known = call('HMGET', P .. 'workflow:' .. id, 'state', 'attempt', 'tenant')
if not known[1] then return { 'missing' } end
if call('HEXISTS', P .. 'workflowrecords:' .. id, action) == 1 then return { 'ok', known[1] } end
if (known[1] ~= 'running' and known[1] ~= 'waiting') or known[2] ~= attempt then return { 'conflict', known[1] } end
call('HSET', P .. 'workflowrecords:' .. id, action, ARGV[4])
grow_workflow(id, known[3], #ARGV[4])
call('HSET', P .. 'workflow:' .. id, 'state', 'running')
call('SADD', P .. 'workflowsdue', id)
tell_workflow(id, 'running')
log_change(now(), ARGV[5], ARGV[6], 'approve', id .. '/' .. action, 'ok')
return { 'ok', 'running' }
