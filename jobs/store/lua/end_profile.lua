-- END_PROFILE id artifact -> 1 / 0: it is not being collected. artifact: what holds the recordings; empty for none.
local id = ARGV[1]
if call('HGET', P .. 'profile:' .. id, 'state') ~= 'collecting' then return 0 end
even_if_full()
call('HSET', P .. 'profile:' .. id, 'artifact', ARGV[2], 'trouble', '')
turn_profile(id, 'done')
drop_profile_parts(id)
return 1
