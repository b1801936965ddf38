-- Output of programs: live lines, and the state of a unit.

-- ADD_OUTPUT id token unit attempt offset run data -> kept | stale: the unit has no such lease | alone: no reader
-- it | dropped: the job writes too fast
-- Add live output of a program for its followers: at most OUTPUT_BUDGET bytes per job, for a minute.
local function add_output(args)
  local OUTPUT_BUDGET, OUTPUT_RATE, OUTPUT_ENTRY, OUTPUT_MS = 262144, 65536, 100, 60000
  local id, unit, data = args[1], tonumber(args[3]), args[7]
  local now_ms, lease = now(), Leases.read(id, args[2])
  if not lease or unit < lease.lo or unit >= lease.hi then return 'stale' end
  local tenant = call('HGET', job_key(id), 'tenant')
  local followed = tenant and call('ZSCORE', PREFIX .. 'followed', tenant .. '/' .. id .. '|' .. decimal(unit))
  if not followed or tonumber(followed) <= now_ms then return 'alone' end

  local lines, about = PREFIX .. 'output:' .. id, PREFIX .. 'outputs:' .. id
  local fields = call('HMGET', about, 'budget', 'at', 'bytes')
  local budget, at = tonumber(fields[1]) or OUTPUT_BUDGET, tonumber(fields[2]) or now_ms
  local bytes = tonumber(fields[3]) or 0
  budget = math.min(OUTPUT_BUDGET, budget + math.floor(math.max(0, now_ms - at) * OUTPUT_RATE / 1000))
  local cost = #data + OUTPUT_ENTRY
  if cost > budget then
    call('HSET', about, 'budget', decimal(budget), 'at', decimal(now_ms))
    call('PEXPIRE', about, OUTPUT_MS)
    return 'dropped'
  end
  call('XADD', lines, '*', 'unit', decimal(unit), 'attempt', args[4], 'offset', args[5], 'run', args[6], 'data', data)
  bytes = bytes + cost
  while bytes > OUTPUT_BUDGET do
    local first = call('XRANGE', lines, '-', '+', 'COUNT', 1)[1]
    if not first then break end
    call('XDEL', lines, first[1])
    bytes = bytes - #first[2][10] - OUTPUT_ENTRY
  end
  call('HSET', about, 'budget', decimal(budget - cost), 'at', decimal(now_ms), 'bytes', decimal(bytes))
  call('PEXPIRE', lines, OUTPUT_MS)
  call('PEXPIRE', about, OUTPUT_MS)
  return 'kept'
end

-- FOLLOW id unit tenant ttl most -> until | 0: `most` units are followed, and no tenant follows two more than this one
-- Follow a unit of a program until this time. If the limit is reached, a tenant that follows at least two units more
-- than this one loses one. With ttl 0, stop following, unless another call has extended it since; `most` is then the
-- returned time of the earlier call.
local function follow(args)
  local tenant, now_ms, key = args[3], now(), PREFIX .. 'followed'
  local member, ttl, most = tenant .. '/' .. args[1] .. '|' .. args[2], tonumber(args[4]), args[5]
  if ttl == 0 then
    if call('ZSCORE', key, member) == most then call('ZREM', key, member) end
    return 0
  end
  call('ZREMRANGEBYSCORE', key, '-inf', decimal(now_ms))
  cap_scores(key, now_ms, ttl)
  if not call('ZSCORE', key, member) and call('ZCARD', key) >= tonumber(most) then
    local counts, first, largest = {}, {}, tenant
    for _, other in ipairs(call('ZRANGE', key, 0, -1)) do
      local name = string.match(other, '^[^/]*')
      counts[name], first[name] = (counts[name] or 0) + 1, first[name] or other
    end
    counts[tenant] = counts[tenant] or 0
    for name, count in pairs(counts) do
      if count > counts[largest] then largest = name end
    end
    if counts[largest] < counts[tenant] + 2 then return 0 end
    call('ZREM', key, first[largest])
  end
  call('ZADD', key, decimal(now_ms + ttl), member)
  return decimal(now_ms + ttl)
end

-- UNIT id unit look -> {} | {job's state, kind, total, tenant, state, artifact, failure}
-- Return the state and stored output of one unit of a program; '' if there is none. The state is waiting, running,
-- retrying, dead or done, or '' if `look` is 0 and the unit has an artifact. Read only.
local function unit(args)
  local id, unit = args[1], tonumber(args[2])
  local row = call('HMGET', job_key(id), 'state', 'kind', 'total', 'tenant', 'cursor')
  if not row[1] then return {} end
  local stored = decimal(unit)
  local artifact = call('HGET', job_key(id, 'files'), stored)

  local function find_range(texts)
    for _, text in ipairs(texts) do
      local lo, hi = string.match(text, '^(%d+):(%d+):')
      if lo and tonumber(lo) <= unit and unit < tonumber(hi) then return text end
    end
  end

  -- Return whether a range starts with this unit, as most retried and dead ranges do. This takes half as long as
  -- parsing the ranges.
  local function starts_range(texts)
    return string.find('\n' .. table.concat(texts, '\n'), '\n' .. stored .. ':', 1, true)
  end

  local function find_state()
    if row[1] == 'done' then return 'done' end
    if unit >= (tonumber(row[5]) or 0) then return 'waiting' end
    if find_range(call('HVALS', job_key(id, 'lease'))) then return 'running' end
    local retry, dead = call('ZRANGE', job_key(id, 'retry'), 0, -1), call('LRANGE', job_key(id, 'dead'), 0, -1)
    if starts_range(retry) then return 'retrying' end
    if starts_range(dead) then return 'dead' end
    local free = find_range(call('LRANGE', job_key(id, 'free'), 0, -1))
    if free then
      local lo, _, _, errors = Ranges.parse(free)
      return (lo == unit and errors > 0) and 'retrying' or 'waiting'
    end
    return find_range(retry) and 'retrying' or find_range(dead) and 'dead' or 'done'
  end

  return { row[1], row[2], row[3], row[4], artifact and args[3] == '0' and '' or find_state(),
    artifact or '', call('HGET', job_key(id, 'failures'), stored) or '' }
end

register({
  { 'add_output', add_output, 'allow-oom' },
  { 'follow', follow, 'allow-oom' },
  { 'unit', unit, 'no-writes' },
})
