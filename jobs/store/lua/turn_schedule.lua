-- TURN_SCHEDULE tenant name next caller token -> 1 / 0: there is none. next: 0 pauses it; else it runs from then on.
local of, name, following, t = ARGV[1], ARGV[2], ARGV[3], now()
local id = call('HGET', P .. 'schedules:' .. of, name)
if not id then return 0 end
local k, on = P .. 'schedule:' .. id, following ~= '0'
local was_paused = call('HGET', k, 'paused') == '1'
if was_paused ~= on then return 1 end
even_if_full()
call('HSET', k, 'paused', on and 0 or 1, 'next', following)
call('HDEL', k, 'firing')
if on then
  call('ZADD', P .. 'schedules', following .. '000', id)
else
  call('ZREM', P .. 'schedules', id)
end
log_change(t, ARGV[4], ARGV[5], on and 'resume schedule' or 'pause schedule', of .. '/' .. name, 'ok')
return 1
