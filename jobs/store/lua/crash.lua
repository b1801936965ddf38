-- CRASH id token -> 1 | 0. A lane died on this lease; counts as an expiry, unless it was ended because the job is cancelled.
local id, token = ARGV[1], ARGV[2]
local t = now()
local j, l = take_back(id, token, t)
if not l then return 0 end
if j.state == 'cancelling' then
  call('LPUSH', key(id, 'free'), range(l.lo, l.hi, l.expiries, l.errors))
  call('HINCRBY', P .. 'outcomes', 'released', 1)
else
  lapse(j, l)
  call('HINCRBY', P .. 'outcomes', 'crashed', 1)
end
after_lease(j, t)
return 1
