-- END_SCHEDULE tenant name caller token -> 1 / 0: there is none. Lets go of what its job needed.
local of, name, t = ARGV[1], ARGV[2], now()
local id = call('HGET', P .. 'schedules:' .. of, name)
if not id then return 0 end
even_if_full()
local artifacts = call('HGET', P .. 'schedule:' .. id, 'artifacts') or ''
call('HDEL', P .. 'schedules:' .. of, name)
call('ZREM', P .. 'schedules', id)
call('DEL', P .. 'schedule:' .. id)
for artifact in string.gmatch(artifacts, '[^,]+') do let_go(of, artifact, 'schedule:' .. id, t) end
log_change(t, ARGV[3], ARGV[4], 'delete schedule', of .. '/' .. name, 'ok')
return 1
