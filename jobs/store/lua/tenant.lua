-- TENANT name weight max_lanes max_jobs caps text tenant token labels -> new | changed. Registers a tenant or changes its
-- weight and caps. max_lanes, max_jobs: 0 is none. caps: further ones, as what=most,what=most. text: those for the audit
-- log. labels: that it requires of hosts, with + between; *: they stay.
local name, weight, lanes, jobs, caps, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local t = now()

-- Everything that is there when the first tenant is registered belongs to `default`.
local function divide()
  for _, queue in ipairs(every_queue()) do
    call('ZUNIONSTORE', P .. 'turns:' .. queue .. ':default', 1, P .. 'pending:' .. queue)
    call('DEL', P .. 'order:' .. queue)
    if call('EXISTS', P .. 'turns:' .. queue .. ':default') == 1 then T.enter(queue, 'default') end
  end
  call('ZUNIONSTORE', P .. 'admitted:default', 3, P .. 'in:queued', P .. 'in:running', P .. 'in:finishing')
  call('ZUNIONSTORE', P .. 'blocked:default', 1, P .. 'in:blocked')
end

if not by_tenant() then
  call('ZADD', P .. 'tenants', num(t), 'default')
  call('HSET', P .. 'shares', 'default', '1|0|0')
  several = true
  T = tenancy()
  divide()
end
local new = call('ZADD', P .. 'tenants', 'NX', num(t), name) == 1
local shares = weight .. '|' .. lanes .. '|' .. jobs
local known = call('HMGET', P .. 'shares', name, name .. '|caps')
local changed = new or known[1] ~= shares or (known[2] or '') ~= caps
call('HSET', P .. 'shares', name, shares)
if caps == '' then call('HDEL', P .. 'shares', name .. '|caps') else call('HSET', P .. 'shares', name .. '|caps', caps) end
T.forget(name)
if not string.find(caps, 'stored_bytes=', 1, true) then
  call('DEL', P .. 'stored:' .. name)
  call('HDEL', P .. 'stored', name)
end
local required = (ARGV[9] or '*') ~= '*' and T.with_labels(name, ARGV[9])
if required then
  changed = true
  call('HSET', P .. 'shares', '|requires', required)
  for _, queue in ipairs(every_queue()) do level(queue) end
end
T.note_cap(name, t)
T.admit_backlog(name, t, 100)
if changed then
  local outcome = 'weight ' .. weight .. ', max_lanes ' .. lanes .. ', max_jobs ' .. jobs .. text
  log_change(t, ARGV[7], ARGV[8], 'tenant', name, outcome)
end
return new and 'new' or 'changed'
