-- PAUSE id tenant token -> {ok|conflict, state} | {missing}
local t = now()
local j = job(ARGV[1])
if not j then return { 'missing' } end
if j.state == 'paused' then return { 'ok', j.state } end
if j.state ~= 'queued' and j.state ~= 'running' then return { 'conflict', j.state } end
set_state(j, 'paused', t)
call('ZREM', P .. 'later', j.id)
tell_holders(j)
log_change(t, ARGV[2], ARGV[3], 'pause', j.id, j.state)
return { 'ok', j.state }
