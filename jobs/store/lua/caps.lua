-- Read after tenancy.lua. What only tenants with caps on a day's use or on stored bytes need: docs/lease-protocol.md,
-- Daily caps and Stored bytes.
function further_caps(T)
local C, left_known = {}, {}

-- Daily caps. What a tenant may still use today of something that ct:usage counts; math.huge where nothing caps it.
function C.left(name, what, t)
  local most, known = T.share_of(name).caps[what], name .. ':' .. what
  if not most then return math.huge end
  if not left_known[known] then
    left_known[known] = most - number_at('HGET', P .. 'usage:' .. name, num(math.floor(t / DAY_MS)) .. '|' .. what)
  end
  return left_known[known]
end

-- Whether a job waits for the next day: its tenant has used the units of its kind. One that is finishing needs none.
function C.spent(j, t) return j.state ~= 'finishing' and C.left(j.tenant, 'units|' .. j.kind, t) <= 0 end

-- Units that this call leases; what it leases further must leave room for them.
function C.foresee(j, units, t)
  local left = C.left(j.tenant, 'units|' .. j.kind, t)
  left_known[j.tenant .. ':units|' .. j.kind] = left - units
end

-- ct:capped has gpu:{tenant} of each tenant that has used the GPU seconds of a day: its jobs ring for no GPU worker.
function C.without_gpu(name, t)
  if C.left(name, 'device_ms', t) > 0 then return false end
  call('SADD', P .. 'capped', 'gpu:' .. name)
  return true
end

-- ct:deferred:{tenant}:{kind}: jobs that wait for the next day, in their turn; ct:deferred says which of these zsets may
-- hold something.
function C.defer(j, turn)
  local name = j.tenant .. ':' .. j.kind
  call('ZADD', P .. 'deferred:' .. name, turn, j.id)
  call('SADD', P .. 'deferred', name)
  j.deferred = 1
  set(j, 'deferred', 1)
  account(j)
  save(j)
  step_out(j.queue, j.tenant, j.id)
end

-- Stored bytes: ct:stored:{tenant} has the size of each job of a tenant with that cap, ct:stored the sums. A job's size is
-- that of its result and of these of its fields.
local WEIGHED = { spec = true, parameters = true, notes = true, after = true, after_any = true }
function C.set_size(name, id, bytes)
  local change = bytes - number_at('HGET', P .. 'stored:' .. name, id)
  if change == 0 then return end
  if bytes > 0 then call('HSET', P .. 'stored:' .. name, id, num(bytes)) else call('HDEL', P .. 'stored:' .. name, id) end
  call('HINCRBY', P .. 'stored', name, num(change))
end

-- Notes the size of what is stored of a job, its specification and its result; 0 for a job that is not there.
function C.weigh(name, id)
  if not T.share_of(name).caps.stored_bytes then return end
  local bytes = 0
  for field in pairs(WEIGHED) do
    local length = redis.pcall('HSTRLEN', key(id), field)
    bytes = bytes + (tonumber(length) or 0)
  end
  local length = redis.pcall('STRLEN', key(id, 'result'))
  C.set_size(name, id, bytes + (tonumber(length) or 0))
end

-- Seconds until the first of a tenant's jobs is purged, if it is among the first of all; else nil.
local function seconds_until_purge(name, t)
  local first = call('ZRANGE', P .. 'expiry', 0, 31, 'WITHSCORES')
  for i = 1, #first, 2 do
    if tenant_of(first[i]) == name then return math.max(1, math.ceil((first[i + 1] - t) / 1000)) end
  end
  return nil
end

-- Why a tenant may not store a further job: {over, cap, its value, seconds, bytes stored, event}; nil when it may. The event
-- after these seconds is expiry; '' if it is unknown when the first job expires. The job's fields are words[from], its name,
-- and what follows it, and so on.
function C.too_much(name, words, from, t)
  local most, bytes = T.share_of(name).caps.stored_bytes, 0
  if not most then return nil end
  for i = from, #words, 2 do
    if WEIGHED[words[i]] then bytes = bytes + #words[i + 1] end
  end
  local stored = number_at('HGET', P .. 'stored', name)
  if stored + bytes <= most then return nil end
  local seconds = seconds_until_purge(name, t)
  return { 'over', 'max_stored_bytes', num(most), num(seconds or 3600), num(stored), seconds and 'expiry' or '' }
end

return C
end
