-- DELETE id tenant token -> {ok, state} | {conflict, state} | {missing}
local id, tenant, token = ARGV[1], ARGV[2], ARGV[3]
local j = job(id)
if not j and call('SISMEMBER', P .. 'broken', id) == 1 then
  purge(id)
  log_change(now(), tenant, token, 'delete', id, 'broken')
  return { 'ok', 'broken' }
end
if not j then return { 'missing' } end
if not TERMINAL[j.state] then return { 'conflict', j.state } end
purge(j.id)
log_change(now(), tenant, token, 'delete', id, j.state)
return { 'ok', j.state }
