-- DONE1 id token result ms worker device marks device_ms -> 1 done | 0 dropped. Commits and finishes a job that one lease
-- covers. device_ms: as COMMIT's.
local id, token, result, ms, worker, device, marks = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local t = now()
local j = job(id)
local l = j and lease_of(id, token)
if not l then
  redis.pcall('HINCRBY', P .. 'outcomes', 'stale', 1) -- a full Redis refuses the counter, not the answer
  return 0
end
if l.hi - l.lo < j.total then return redis.error_reply('DONE1 needs a lease of the whole job') end
drop_lease(j, token, t, l, true)
if by_tenant() then T.settle_bill(j, l, ms) end
if j.state == 'cancelling' then
  call('LPUSH', key(id, 'free'), range(l.lo, l.hi, 0, 0))
  after_lease(j, t)
  return 0
end
j.done = j.total
set(j, 'done', num(j.done))
call('SET', key(id, 'result'), result)
keep_marks(marks)
used(j, l, worker, device, j.total, ms, t, true)
local device_ms = tonumber(ARGV[8] or 0)
if device_ms > 0 then
  set(j, 'use|' .. device .. '|' .. worker .. '|device_ms', num(device_ms))
  use(j, t, 'device_ms', device_ms)
end
if j.state ~= 'running' then set_state(j, 'finishing', t) end
set_state(j, 'done', t)
return 1
