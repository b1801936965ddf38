-- RESUME id tenant token hold -> {ok|conflict, state} | {missing} | {over, cap, value, seconds}. hold: as in SUBMIT.
local t = now()
local j = job(ARGV[1])
if not j then return { 'missing' } end
if j.state == 'queued' or j.state == 'running' then return { 'ok', j.state } end
if j.state ~= 'paused' then return { 'conflict', j.state } end
local refused = by_tenant() and T.refusal(j.tenant)
if refused and ARGV[4] ~= '1' then return refused end
reclaim(j, t)
even_if_full()
call('HSET', key(j.id), 'since', num(t))
if refused then T.put_in_backlog(j) end
set_state(j, j.started > 0 and not refused and 'running' or 'queued', t)
settle(j, t)
rest(j, t)
log_change(t, ARGV[2], ARGV[3], 'resume', j.id, j.state)
return { 'ok', j.state }
