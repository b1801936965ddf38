-- BEAT id token upto ttl -> 1 go on | 2 stop at the next chunk and commit | 0 drop the work
local id, token, upto, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local t = now()
local j = job(id)
local l = j and lease_of(id, token)
if l then l.granted = math.min(l.granted, t) end -- else a lease from before the clock stepped back has an hour more
if not l or j.state == 'cancelling' or j.state == 'failed' or t - l.granted > j.max_ms then return 0 end
even_if_full()
if is_program(j) then ttl = PROGRAM_TTL end
if j.timeout_ms > 0 then settle(j, t) end
if j.state == 'failed' then return 0 end
if by_tenant() then
  call('ZADD', P .. 'lanes:' .. j.tenant, num(t + ttl), token)
  T.settle_bill(j, l, math.max(l.billed or 0, t - l.granted))
end
l.upto = math.max(l.upto, math.min(upto, l.hi))
write_lease(id, token, l)
call('ZADD', key(id, 'leases'), num(t + ttl), token)
return j.state == 'paused' and 2 or 1
