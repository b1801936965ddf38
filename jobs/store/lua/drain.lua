-- DRAIN worker on(1|0) tenant token -> {ok} | {missing}
local k = P .. 'worker:' .. ARGV[1]
if call('EXISTS', k) == 0 then return { 'missing' } end
even_if_full()
local what, changed = ARGV[2] == '1' and 'drain' or 'undrain'
call('INCR', P .. 'drains')
if what == 'drain' then changed = call('HSET', k, 'drain', '1') else changed = call('HDEL', k, 'drain') end
call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', what, 'worker', ARGV[1])
if changed == 1 then log_change(now(), ARGV[3], ARGV[4], what, ARGV[1], 'ok') end
return { 'ok' }
