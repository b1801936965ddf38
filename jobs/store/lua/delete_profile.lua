-- DELETE_PROFILE tenant name caller token -> {id, artifact} / {}: there is none.
local of, name = ARGV[1], ARGV[2]
local id = call('HGET', P .. 'profiles:' .. of, name)
if not id then return {} end
even_if_full()
local artifact = call('HGET', P .. 'profile:' .. id, 'artifact') or ''
call('HDEL', P .. 'profiles:' .. of, name)
drop_profile(id)
log_change(now(), ARGV[3], ARGV[4], 'delete profile', of .. '/' .. name, 'ok')
return { id, artifact }
