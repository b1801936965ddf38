-- Read after the prelude. Made only when something is broken or has become long.

local function says(text, ...)
  for _, word in ipairs({ ... }) do
    if string.find(text, word) then return true end
  end
  return false
end

local function bad_content(err)
  return says(err, 'WRONGTYPE', 'hash value is not', 'would overflow', 'equal or smaller than the target', 'exhausted the last')
end

local function bad_argument(err)
  return says(err, 'not an integer', 'not a float', 'not a valid float', 'out of range', 'must be strings or integers')
end

local function is_index(k)
  return says(k, '^ct:pending:', '^ct:turns:', '^ct:order:', '^ct:admitted:', '^ct:backlog:', '^ct:blocked:', '^ct:lacked', '^ct:unfit$', '^ct:waiting_replicas$', '^ct:shapes', '^ct:deferred', '^ct:in:', '^ct:later$', '^ct:expiry$', '^ct:slots$', '^ct:slotjob$', '^ct:jobs$',
    '^ct:held:', '^ct:holding:', '^ct:running$', '^ct:load$', '^ct:deadlines$')
end

local function note_broken(name)
  if type(redis.pcall('SADD', P .. 'broken', name)) == 'table' then
    redis.call('DEL', P .. 'broken')
    redis.call('SADD', P .. 'broken', name)
  end
end

-- The counter of jobs goes on above every job that it has numbered.
local function number_anew()
  local top = 0
  for _, index in ipairs({ 'jobs', unpack(every_queue()) }) do
    local k = index == 'jobs' and P .. index or P .. 'pending:' .. index
    local found = redis.pcall('ZREVRANGEBYSCORE', k, '9007199254740992', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    top = math.max(top, tonumber(found[2]) or 0)
  end
  redis.call('SET', P .. 'seq', string.format('%.0f', top))
end

-- Empties the place of a key. What was there is kept for a week; the leader builds indexes anew.
function put_aside(k, command, field)
  if command == 'HINCRBY' and redis.call('TYPE', k).ok == 'hash' then
    redis.call('HDEL', k, field)
  else
    redis.call('RENAME', k, P .. 'aside:' .. k)
    redis.call('EXPIRE', P .. 'aside:' .. k, 604800)
  end
  note_broken(k)
  if k == P .. 'seq' then number_anew() end
  if is_index(k) then redis.call('SET', P .. 'disturbed', 1) end
end

function mended(err, command, k, ...)
  local fault = bad_content(err) or (command == 'INCR' and bad_argument(err))
  local id, part = string.match(k or '', '^ct:job:([^:]*):?(.*)$')
  if fault and part == 'ev' then
    redis.call('DEL', k)
  elseif fault and id then
    error({ broken = id, why = err })
  elseif fault then
    put_aside(k, command, ...)
  end
  refused = not fault and not bad_argument(err)
  return redis.call(command, k, ...)
end

-- Thins a job's own events to the last 200 of its states and at most `steps` steps of its progress, evenly spread.
function thin(id, steps)
  local k, entries, states, progress = key(id, 'ev'), call('XRANGE', key(id, 'ev'), '-', '+'), 0, 0
  for _, entry in ipairs(entries) do
    if entry[2][6] == 'progress' then progress = progress + 1 else states = states + 1 end
  end
  call('DEL', k)
  local nth, left, share = 0, states, math.min(1, steps / progress)
  for _, entry in ipairs(entries) do
    local keep = left <= 200
    if entry[2][6] == 'progress' then
      nth = nth + 1
      keep = math.floor(nth * share) > math.floor((nth - 1) * share)
    else
      left = left - 1
    end
    if keep then call('XADD', k, entry[1], unpack(entry[2])) end
  end
end

-- Puts a job where nobody looks for work, and fails it if that can still be written: what is wrong with it must not
-- hold up the others. It goes after a week, or by DELETE.
function quarantine(id, why)
  broken[id] = true
  note_broken(id)
  for _, queue in ipairs(every_queue()) do
    if step_out(queue, tenant_of(id), id) == 1 then level(queue) end
    call('ZREM', P .. 'held:' .. queue .. ':' .. tenant_of(id), id)
  end
  for _, index in ipairs(by_tenant() and { 'admitted:', 'backlog:', 'blocked:' } or {}) do call('ZREM', P .. index .. tenant_of(id), id) end
  call('ZREM', P .. 'later', id)
  call('ZREM', P .. 'deadlines', id)
  call('SREM', P .. 'running', id)
  local j = read_job(id)
  if j and TERMINAL[j.state] then return end
  if j then j.deferred = 0 end -- else numbers are read of which one may be what is broken
  local text = 'what is stored of this job is broken (' .. why .. '); submit it again'
  local failed = j and pcall(function()
    call('HSET', key(id), 'error', text)
    set_state(j, 'failed', now(), 'error', text)
  end)
  if not failed then
    for state in pairs(STATES) do call('ZREM', P .. 'in:' .. state, id) end
    call('ZADD', P .. 'expiry', num(now() + 604800000), id)
  end
end
