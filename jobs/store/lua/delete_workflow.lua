-- DELETE_WORKFLOW id tenant token -> {ok|conflict, state} | {missing}. Its jobs stay until they expire. token *: it has expired.
local id, tenant, token = ARGV[1], ARGV[2], ARGV[3]
local known = call('HMGET', P .. 'workflow:' .. id, 'state', 'tenant', 'bytes', 'idem')
local state, of = known[1], known[2] or 'default'
call('ZREM', P .. 'workflowexpiry', id)
if not state then
  call('ZREM', P .. 'workflows', id)
  return { 'missing' }
end
if state ~= 'done' and state ~= 'failed' and state ~= 'cancelled' then return { 'conflict', state } end
even_if_full()
local idem = known[4] or ''
if idem ~= '' and string.match(call('GET', P .. 'idem:' .. idem) or '', '^(.-)|') == id then call('DEL', P .. 'idem:' .. idem) end
call('DEL', P .. 'workflow:' .. id, P .. 'workflowdocument:' .. id, P .. 'workflowretries:' .. id)
call('UNLINK', P .. 'workflowjobs:' .. id, P .. 'workflowrecords:' .. id)
call('ZREM', P .. 'workflows', id)
call('ZREM', P .. 'workflows:' .. of, id)
call('SREM', P .. 'workflowslive', id)
if call('HINCRBY', P .. 'workflowbytes', of, num(-(tonumber(known[3] or 0) or 0))) <= 0 then
  call('HDEL', P .. 'workflowbytes', of)
end
weigh_workflows(of)
tell_workflow(id, 'deleted', of)
if token ~= '*' then log_change(now(), tenant, token, 'delete workflow', id, state) end
return { 'ok', state }
