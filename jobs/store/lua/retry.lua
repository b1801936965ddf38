-- RETRY id version tenant token -> {ok|conflict, state} | {version, stored} | {missing}. Goes on with the ranges that are not done.
local id, version, tenant, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()
local j = job(id)
if not j then return { 'missing' } end
if PENDABLE[j.state] then return { 'ok', j.state } end
if j.state ~= 'failed' and j.state ~= 'cancelled' then return { 'conflict', j.state } end
if j.version ~= version then return { 'version', j.version } end
even_if_full()
reclaim(j, t)
local pieces = call('LRANGE', key(id, 'dead'), 0, -1)
for _, list in ipairs({ call('LRANGE', key(id, 'free'), 0, -1), call('ZRANGE', key(id, 'retry'), 0, -1) }) do
  for _, piece in ipairs(list) do pieces[#pieces + 1] = piece end
end
call('DEL', key(id, 'dead'), key(id, 'retry'), key(id, 'free'))
for _, piece in ipairs(pieces) do
  local lo, hi = split_range(piece)
  call('RPUSH', key(id, 'free'), range(lo, hi, 0, 0))
end
call('HDEL', key(id), 'error', 'ended', 'stumbles')
set_state(j, 'queued', t)
if j.done == j.total then set_state(j, 'finishing', t) end
rest(j, t)
log_change(t, tenant, token, 'retry', id, j.state)
return { 'ok', j.state }
