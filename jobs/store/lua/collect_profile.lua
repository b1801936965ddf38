-- COLLECT_PROFILE id from caller token action most -> 1 / 0: it is in another state than `from` / -1: `most` others live, where
-- it was done. What was recorded is brought in.
local id, t = ARGV[1], now()
local k = P .. 'profile:' .. id
local known = call('HMGET', k, 'state', 'tenant', 'name')
if known[1] ~= ARGV[2] then return 0 end
if known[1] == 'done' and call('HLEN', P .. 'profiling') >= tonumber(ARGV[6]) then return -1 end
even_if_full()
call('HSET', k, 'collecting', num(t))
if known[1] == 'recording' then call('HSET', k, 'ended', num(t)) end
turn_profile(id, 'collecting')
log_change(t, ARGV[3], ARGV[4], ARGV[5], known[2] .. '/' .. known[3], 'ok')
return 1
