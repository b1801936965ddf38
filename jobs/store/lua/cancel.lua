-- CANCEL id tenant token -> {ok|conflict, state} | {missing}. What is done stays; retry goes on from there.
local id, tenant, token = ARGV[1], ARGV[2], ARGV[3]
local t = now()
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
end
log_change(t, tenant, token, 'cancel', id, j.state)
return { 'ok', j.state }
