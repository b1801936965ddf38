-- CANCEL id tenant token [workflow attempt] -> {ok|conflict, state} | {missing} | {stale}. What is done stays; retry goes on
-- from there. workflow: while that is being cancelled in this attempt, else stale.
local id, tenant, token, workflow, attempt = unpack(ARGV)
local t = now()
if workflow and workflow_state(workflow, attempt) ~= 'cancelling' then return { 'stale' } end
local j = job(id)
if not j then return { 'missing' } end
if j.state == 'cancelling' or j.state == 'cancelled' then return { 'ok', j.state } end
if j.state ~= 'blocked' and j.state ~= 'queued' and j.state ~= 'running' and j.state ~= 'paused' then
  return { 'conflict', j.state }
end
reclaim(j, t)
if call('ZCARD', key(id, 'leases')) == 0 then
  set_state(j, 'cancelled', t)
else
  set_state(j, 'cancelling', t)
  set_later(j, earliest(key(id, 'leases')))
  tell_holders(j)
end
log_change(t, tenant, token, 'cancel', id, j.state)
return { 'ok', j.state }
