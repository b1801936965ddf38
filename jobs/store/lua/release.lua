-- RELEASE id token -> 1 | 0. Gives the range back untouched.
local id, token = ARGV[1], ARGV[2]
local t = now()
local j, l = take_back(id, token, t)
if not l then return 0 end
call('LPUSH', key(id, 'free'), range(l.lo, l.hi, l.expiries, l.errors))
call('HINCRBY', P .. 'outcomes', 'released', 1)
after_lease(j, t)
return 1
