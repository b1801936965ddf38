-- Usage of tenants by day.

-- Add to ct:usage:{tenant}, which has usage by day|name. If a counter overflows, its value does not change.
function Usage.add(job, now_ms, what, amount)
  State.day = State.day or decimal(math.floor(now_ms / DAY_MS)) .. '|'
  local field = State.day .. what
  local sum = redis.pcall('HINCRBY', PREFIX .. 'usage:' .. job.tenant, field, decimal(amount))
  if sum == amount then call('SADD', PREFIX .. 'usages', job.tenant) end -- first use of the day
end

-- Count the usage of a lease. is_whole_job means that the lease covered the job, for which nothing was counted before.
function Usage.count_lease(job, lease, worker, device, units, ms, now_ms, is_whole_job)
  Usage.add(job, now_ms, 'ms|' .. device, ms)
  Usage.add(job, now_ms, 'units|' .. job.kind, units)
  Spans.extend(job, lease, device, units, ms, now_ms)
  local prefix = 'use|' .. device .. '|' .. worker .. '|'
  if is_whole_job then
    Jobs.set(job, prefix .. 'units', decimal(units), prefix .. 'ms', decimal(ms), prefix .. 'leases', '1')
  else
    call('HINCRBY', job_key(job.id), prefix .. 'units', decimal(units))
    call('HINCRBY', job_key(job.id), prefix .. 'ms', decimal(ms))
    call('HINCRBY', job_key(job.id), prefix .. 'leases', '1')
  end
  -- An overflow must not stop a commit.
  redis.pcall('HINCRBY', PREFIX .. 'units', job.kind .. '|' .. device, decimal(units))
  call('HINCRBY', PREFIX .. 'outcomes', 'committed', '1')
end

-- USAGE_PRUNE tenant day -> number of fields removed
-- The leader calls this. Add up usage of days before `day` under `before`.
local function usage_prune(args)
  local key, removed = PREFIX .. 'usage:' .. args[1], 0
  local stored = call('HGETALL', key)
  for i = 1, #stored, 2 do
    local day, what = string.match(stored[i], '^(%d+)|(.+)$')
    if day and tonumber(day) < tonumber(args[2]) then
      redis.pcall('HINCRBY', key, 'before|' .. what, stored[i + 1])
      call('HDEL', key, stored[i])
      removed = removed + 1
    end
  end
  return removed
end

-- COUNT_INFERENCE coordinator number (tenant model requests prompt answer service metrics) ... -> 1 / 0: this batch was
-- counted before
-- `metrics` is JSON with counts by name, which are added to the service's last minute.
local function count_inference(args)
  local key, number, now_ms = PREFIX .. 'inferencecounted:' .. args[1], args[2], now()
  if call('GET', key) == number then return 0 end
  call('SET', key, number, 'EX', 3600)
  local day, slot = decimal(math.floor(now_ms / DAY_MS)), math.floor(now_ms / 10000)
  for i = 3, #args, 7 do
    local usage, model = PREFIX .. 'usage:' .. args[i], args[i + 1]
    for offset, what in ipairs({ 'requests', 'prompt', 'answer' }) do
      local amount = args[i + 1 + offset]
      if amount ~= '0' then call('HINCRBY', usage, day .. '|' .. what .. '|' .. model, amount) end
    end
    if args[i + 2] ~= '0' then call('SADD', PREFIX .. 'usages', args[i]) end
    local metrics = PREFIX .. 'servicefigures:' .. args[i + 5]
    if call('HGET', metrics, 'slot') ~= decimal(slot) then
      for _, field in ipairs(call('HKEYS', metrics)) do
        local counted_in = tonumber(string.match(field, '^(%d+)|'))
        if counted_in and counted_in < slot - 6 then call('HDEL', metrics, field) end
      end
      call('HSET', metrics, 'slot', decimal(slot))
    end
    for what, count in pairs(cjson.decode(args[i + 6])) do
      call('HINCRBY', metrics, decimal(slot) .. '|' .. what, count)
    end
    call('PEXPIRE', metrics, 90000)
  end
  return 1
end

register({
  { 'count_inference', count_inference, 'allow-oom' },
  { 'usage_prune', usage_prune, 'allow-oom' },
})
