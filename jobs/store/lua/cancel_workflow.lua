-- CANCEL_WORKFLOW id tenant token -> {ok|conflict, state} | {missing}. The leader cancels its jobs.
local id, tenant, token = ARGV[1], ARGV[2], ARGV[3]
local state = call('HGET', P .. 'workflow:' .. id, 'state')
if not state then return { 'missing' } end
if state == 'cancelling' or state == 'cancelled' then return { 'ok', state } end
if state ~= 'running' and state ~= 'waiting' then return { 'conflict', state } end
even_if_full()
call('HSET', P .. 'workflow:' .. id, 'state', 'cancelling')
call('HDEL', P .. 'workflow:' .. id, 'waits')
call('SADD', P .. 'workflowsdue', id)
tell_workflow(id, 'cancelling')
log_change(now(), tenant, token, 'cancel workflow', id, 'cancelling')
return { 'ok', 'cancelling' }
