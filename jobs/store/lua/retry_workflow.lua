-- RETRY_WORKFLOW id attempt tenant token retried forgotten key ... -> {ok|conflict, state} | {missing}
-- The first `retried` keys are those whose jobs are tried again, the next `forgotten` those that are submitted anew.
local id, attempt, tenant, token, retried, forgotten = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local of = P .. 'workflow:' .. id
local known = call('HMGET', of, 'state', 'attempt', 'tenant')
if not known[1] then return { 'missing' } end
if known[1] == 'running' or known[1] == 'waiting' then return { 'ok', known[1] } end
if (known[1] ~= 'failed' and known[1] ~= 'cancelled') or known[2] ~= attempt then return { 'conflict', known[1] } end
even_if_full()
for first = 7, 6 + retried, 1000 do
  call('SADD', P .. 'workflowretries:' .. id, unpack(ARGV, first, math.min(first + 999, 6 + retried)))
end
forget_actions(id, known[3], ARGV, 7 + retried, 6 + retried + forgotten)
call('HSET', of, 'state', 'running')
call('HINCRBY', of, 'attempt', 1)
call('HDEL', of, 'ended', 'waits', 'error')
call('ZREM', P .. 'workflowexpiry', id)
call('SADD', P .. 'workflowslive', id)
call('SADD', P .. 'workflowsdue', id)
tell_workflow(id, 'running')
log_change(now(), tenant, token, 'retry workflow', id, 'running')
return { 'ok', 'running' }
