-- COMMIT id token upto partial ms worker device pace device_ms mj keep lo
--   -> {1 merged | 2 merged and finishing | 0 stale, parts}
-- keep: 1 goes on with the same token as a lease of upto..hi. lo: the partial's first unit, or ''; another than the
-- lease's is stale, since Redis has lost a commit, or was committed before, by the same call.
-- device_ms, mj: this lease's share of a shared device's time, 0 if it has its own, and of its energy, '' if not known.
-- pace: the lane's speed on this job over the kind's own estimate; remembered by kind, mode and device.
local id, token, upto, partial, ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local worker, device, pace = ARGV[6], ARGV[7], tonumber(ARGV[8])
local device_ms, mj, keep, lo = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1', tonumber(ARGV[12])
local t = now()
local j = job(id)
local l = j and lease_of(id, token)
if l and keep and lo and lo < l.lo and upto <= l.lo then return { 1, call('LLEN', key(id, 'parts')) } end
if not l or (lo and lo ~= l.lo) then
  redis.pcall('HINCRBY', P .. 'outcomes', 'stale', 1)
  return { 0, 0 }
end
keep = keep and upto < l.hi
if upto <= l.lo or upto > l.hi then
  return redis.error_reply('COMMIT of ' .. num(upto) .. ' outside (' .. num(l.lo) .. ', ' .. num(l.hi) .. ']')
end
if not keep then drop_lease(j, token, t, l) end
if by_tenant() then T.settle_bill(j, l, ms) end
if upto < l.hi and not keep then call('LPUSH', key(id, 'free'), range(upto, l.hi, 0, 0)) end
local parts = call('RPUSH', key(id, 'parts'), partial)
j.done = j.done + (upto - l.lo) -- in this order: done + upto may pass 2^53
set(j, 'done', num(j.done))
save(j)
used(j, l, worker, device, upto - l.lo, ms, t)
if keep then go_on(j, token, l, upto, t) end
local share = 'use|' .. device .. '|' .. worker .. '|'
if device_ms > 0 then
  call('HINCRBY', key(id), share .. 'device_ms', num(device_ms))
  use(j, t, 'device_ms', device_ms)
end
if mj then
  call('HINCRBY', key(id), share .. 'mj', num(mj))
  use(j, t, 'mj', mj)
end
if pace > 0 then
  local field = j.kind .. '|' .. (call('HGET', key(id), 'mode') or '') .. '|' .. device
  local old = tonumber(call('HGET', P .. 'pace', field) or pace)
  if not old or not (old > 0 and old < math.huge) then old = pace end
  call('HSET', P .. 'pace', field, string.format('%.6g', old + (pace - old) / 4))
end
if t < j.mark_at then
  call('HSET', key(id), 'mark_at', num(t), 'mark_done', num(j.done))
elseif t - j.mark_at >= 2000 then
  local rate = (j.done - j.mark_done) * 1000 / (t - j.mark_at)
  if j.rate > 0 then rate = (rate + j.rate) / 2 end
  call('HSET', key(id), 'rate', string.format('%.9g', rate), 'mark_at', num(t), 'mark_done', num(j.done))
end
if whole(j, t) then return { 2, parts } end
if j.state == 'cancelled' then return { 1, parts } end
account(j)
local tells = math.abs(t - j.progress_at) >= PROGRESS_MS
if tells then set(j, 'progress_at', num(t)) end
save(j)
if tells then emit(j, 'progress', 'worker', worker) end
after_lease(j, t)
return { 1, parts }
