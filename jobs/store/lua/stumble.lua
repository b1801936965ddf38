-- STUMBLE id token error -> 1 failed | 0. A lane died over the result: a finishing job fails after too many such deaths.
local id, token, text = ARGV[1], ARGV[2], ARGV[3]
local t = now()
local j = job(id)
if not j or j.state ~= 'finishing' then return 0 end
even_if_full()
if call('HSETNX', key(id), 'stumble|' .. token, 1) == 0 then return 0 end
if call('HINCRBY', key(id), 'stumbles', 1) <= MAX_EXPIRIES then return 0 end
call('HSET', key(id), 'error', text)
unpend(j)
set_state(j, 'failed', t, 'error', text)
return 1
