-- RELEASE id token -> 1 | 0. Gives the range back untouched.
local id, token = ARGV[1], ARGV[2]
local t = now()
local j = job(id)
local l = j and lease_of(id, token)
if not l then return 0 end
drop_lease(id, token)
call('LPUSH', key(id, 'free'), range(l.lo, l.hi, l.expiries, l.errors))
call('HINCRBY', P .. 'outcomes', 'released', 1)
after_lease(j, t)
return 1
