-- TENANT name weight max_lanes max_jobs tenant token -> new | changed. Registers a tenant or changes its weight and caps; 0: no cap.
local name, weight, lanes, jobs = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()

-- Everything that is there when the first tenant is registered belongs to `default`.
local function divide()
  for _, queue in ipairs(every_queue()) do
    call('ZUNIONSTORE', P .. 'turns:' .. queue .. ':default', 1, P .. 'pending:' .. queue)
    call('DEL', P .. 'order:' .. queue)
    if call('EXISTS', P .. 'turns:' .. queue .. ':default') == 1 then T.enter(queue, 'default') end
  end
  call('ZUNIONSTORE', P .. 'admitted:default', 3, P .. 'in:queued', P .. 'in:running', P .. 'in:finishing')
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
local changed = new or call('HGET', P .. 'shares', name) ~= shares
call('HSET', P .. 'shares', name, shares)
T.forget(name)
T.note_cap(name, t)
T.admit_backlog(name, t, 100)
if changed then
  log_change(t, ARGV[5], ARGV[6], 'tenant', name, 'weight ' .. weight .. ', max_lanes ' .. lanes .. ', max_jobs ' .. jobs)
end
return new and 'new' or 'changed'
