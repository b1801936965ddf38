-- UNIT id unit look -> {} | {job's state, kind, total, tenant, state, artifact, failure}: where one unit of a program stands,
-- and what is stored of it, '' for nothing. state: waiting, running, retrying, dead or done; '' where it is not looked for: with
-- look 0, of a unit with an artifact. Reads only.
local id, unit = ARGV[1], tonumber(ARGV[2])
local row = call('HMGET', key(id), 'state', 'kind', 'total', 'tenant', 'cursor')
if not row[1] then return {} end
local stored = num(unit)
local artifact = call('HGET', key(id, 'files'), stored)

local function among(texts)
  for _, text in ipairs(texts) do
    local lo, hi = string.match(text, '^(%d+):(%d+):')
    if lo and tonumber(lo) <= unit and unit < tonumber(hi) then return text end
  end
end

-- The range that begins with this unit, as most do that are tried again or were given up: it is found in half the time.
local function first_of(texts)
  return string.find('\n' .. table.concat(texts, '\n'), '\n' .. stored .. ':', 1, true)
end

local function state()
  if row[1] == 'done' then return 'done' end
  if unit >= (tonumber(row[5]) or 0) then return 'waiting' end
  if among(call('HVALS', key(id, 'lease'))) then return 'running' end
  local retry, dead = call('ZRANGE', key(id, 'retry'), 0, -1), call('LRANGE', key(id, 'dead'), 0, -1)
  if first_of(retry) then return 'retrying' end
  if first_of(dead) then return 'dead' end
  local free = among(call('LRANGE', key(id, 'free'), 0, -1))
  if free then
    local lo, _, _, errors = split_range(free)
    return (lo == unit and errors > 0) and 'retrying' or 'waiting'
  end
  return among(retry) and 'retrying' or among(dead) and 'dead' or 'done'
end

return { row[1], row[2] or '', row[3] or '0', row[4] or 'default', artifact and ARGV[3] == '0' and '' or state(),
  artifact or '', call('HGET', key(id, 'failures'), stored) or '' }
