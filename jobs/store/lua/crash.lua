-- CRASH id token -> 1 | 0. A lane died on this lease; counts as an expiry.
local id, token = ARGV[1], ARGV[2]
local t = now()
local j, l = take_back(id, token, t)
if not l then return 0 end
lapse(j, l)
call('HINCRBY', P .. 'outcomes', 'crashed', 1)
after_lease(j, t)
return 1
