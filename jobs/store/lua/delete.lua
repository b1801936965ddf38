-- DELETE id tenant token -> {ok, state} | {conflict, state} | {waited, jobs that wait for it} | {missing}. A blocked
-- job is cancelled first.
local id, tenant, token = ARGV[1], ARGV[2], ARGV[3]
local j = job(id)
if not j and call('SISMEMBER', P .. 'broken', id) == 1 then
  if not purge(id) then return { 'waited', num(K.waiting_for(id)) } end
  log_change(now(), tenant, token, 'delete', id, 'broken')
  return { 'ok', 'broken' }
end
if not j then return { 'missing' } end
if not TERMINAL[j.state] and j.state ~= 'blocked' then return { 'conflict', j.state } end
if j.ties ~= '' then
  K = K or ties()
  local waiting = K.waiting_for(id)
  if waiting > 0 then return { 'waited', num(waiting) } end
end
if j.state == 'blocked' then set_state(j, 'cancelled', now()) end
local was = j.state
even_if_full()
j.state = 'deleted'
emit(j, 'deleted')
purge(j.id)
log_change(now(), tenant, token, 'delete', id, was)
return { 'ok', was }
