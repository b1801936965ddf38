-- SPLIT id token at -> 1 | 0. A lease ends at a unit within it; the units from there on are leased next.
local id, token, at = ARGV[1], ARGV[2], tonumber(ARGV[3])
local t = now()
local j = job(id)
local l = j and lease_of(id, token)
if l and at == l.hi then return 1 end
if not l or at <= l.lo or at > l.hi then return 0 end
call('LPUSH', key(id, 'free'), range(at, l.hi, 0, 0))
l.tail, l.hi, l.upto = l.hi - at, at, math.min(l.upto, at)
write_lease(id, token, l)
after_lease(j, t)
if j.holders > 0 and j.state == 'running' then ring_for_help(j, j.max_running > 0 and j.max_running - 1 or l.tail) end
return 1
