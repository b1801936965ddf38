-- RESUME id tenant token -> {ok|conflict, state} | {missing}
local t = now()
local j = job(ARGV[1])
if not j then return { 'missing' } end
if j.state == 'queued' or j.state == 'running' then return { 'ok', j.state } end
if j.state ~= 'paused' then return { 'conflict', j.state } end
reclaim(j, t)
set_state(j, j.started > 0 and 'running' or 'queued', t)
settle(j, t)
rest(j, t)
log_change(t, ARGV[2], ARGV[3], 'resume', j.id, j.state)
return { 'ok', j.state }
