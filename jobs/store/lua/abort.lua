-- ABORT id error -> 1 | 0. The result cannot be derived: a finishing job fails; retry tries again.
local id, text = ARGV[1], ARGV[2]
local t = now()
local j = job(id)
if not j or j.state ~= 'finishing' then return 0 end
even_if_full()
call('HSET', key(id), 'error', text)
unpend(j)
set_state(j, 'failed', t, 'error', text)
return 1
