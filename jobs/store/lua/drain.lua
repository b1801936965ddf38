-- DRAIN worker on(1|0) -> {ok} | {missing}
local k = P .. 'worker:' .. ARGV[1]
if call('EXISTS', k) == 0 then return { 'missing' } end
even_if_full()
if ARGV[2] == '1' then call('HSET', k, 'drain', '1') else call('HDEL', k, 'drain') end
call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', ARGV[2] == '1' and 'drain' or 'undrain', 'worker', ARGV[1])
return { 'ok' }
