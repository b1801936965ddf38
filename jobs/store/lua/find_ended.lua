-- FIND_ENDED -> how many. Writes the deliveries of jobs that ended without theirs, among 32 a call.
K = K or ties()
local t, found = now(), 0
cap(P .. 'notifying', t, K.NOTIFYING_MS)
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'notifying', '-inf', num(t), 'LIMIT', 0, 32)) do
  local j = read_job(id)
  if not j then
    call('ZREM', P .. 'notifying', id)
  elseif TERMINAL[j.state] then
    K.notify(j, t)
    found = found + 1
  else
    call('ZADD', P .. 'notifying', num(t + K.NOTIFYING_MS), id)
  end
end
return found
