-- Caps of tenants on daily usage and stored bytes.

-- Fields that count towards the size of a job, in addition to its result. ct:stored:{tenant} has the size of each job
-- of a tenant with a cap on stored bytes; ct:stored has the sum for each tenant.
local SIZED_FIELDS = { spec = true, parameters = true, notes = true, after = true, after_any = true }

-- Return the amount of a ct:usage counter that the tenant may still use today; math.huge without a cap.
function Caps.remaining(name, what, now_ms)
  local most, known = Tenants.share_of(name).caps[what], name .. ':' .. what
  if not most then return math.huge end
  if not State.remaining[known] then
    local field = decimal(math.floor(now_ms / DAY_MS)) .. '|' .. what
    State.remaining[known] = most - read_number('HGET', PREFIX .. 'usage:' .. name, field)
  end
  return State.remaining[known]
end

-- Return whether the job must wait for the next day because its tenant has used all units of the kind. A finishing job
-- needs no units.
function Caps.is_exhausted(job, now_ms)
  return job.state ~= 'finishing' and Caps.remaining(job.tenant, 'units|' .. job.kind, now_ms) <= 0
end

-- Count the units that this call leases, so that its next leases have fewer available.
function Caps.reserve(job, units, now_ms)
  local left = Caps.remaining(job.tenant, 'units|' .. job.kind, now_ms)
  State.remaining[job.tenant .. ':units|' .. job.kind] = left - units
end

-- Return whether the tenant has used its GPU seconds of the day. If so, add gpu:{tenant} to ct:capped, so that its jobs
-- do not notify GPU workers.
function Caps.is_gpu_exhausted(name, now_ms)
  if Caps.remaining(name, 'device_ms', now_ms) > 0 then return false end
  Tenants.set_capped('SADD', 'gpu:' .. name)
  return true
end

-- Move a job to ct:deferred:{tenant}:{kind}, where jobs wait for the next day with their positions. ct:deferred is the
-- set of these keys that can have members.
function Caps.defer(job, position)
  local name = job.tenant .. ':' .. job.kind
  call('ZADD', PREFIX .. 'deferred:' .. name, position, job.id)
  call('SADD', PREFIX .. 'deferred', name)
  job.deferred = 1
  Jobs.set(job, 'deferred', 1)
  Jobs.update_load(job)
  Jobs.save(job)
  Queues.dequeue(job.queue, job.tenant, job.id)
end

function Caps.set_size(name, id, bytes)
  local sizes = PREFIX .. 'stored:' .. name
  local change = bytes - read_number('HGET', sizes, id)
  if change == 0 then return end
  if bytes > 0 then call('HSET', sizes, id, decimal(bytes)) else call('HDEL', sizes, id) end
  call('HINCRBY', PREFIX .. 'stored', name, decimal(change))
end

-- Record the size of a job's spec and result; 0 if the job does not exist.
local function measure(name, id)
  if not Tenants.share_of(name).caps.stored_bytes then return end
  local bytes = 0
  for field in pairs(SIZED_FIELDS) do
    local length = redis.pcall('HSTRLEN', job_key(id), field)
    bytes = bytes + (tonumber(length) or 0)
  end
  local length = redis.pcall('STRLEN', job_key(id, 'result'))
  Caps.set_size(name, id, bytes + (tonumber(length) or 0))
end

-- Record the size of a job if its tenant has a cap on stored bytes.
function Caps.update_job_size(name, id)
  if Tenants.are_registered() and Tenants.has_caps(name) then measure(name, id) end
end

-- Return the seconds until the tenant's next job is purged, or nil if the next 32 purged jobs have other tenants.
local function estimate_purge_seconds(name, now_ms)
  local first = call('ZRANGE', PREFIX .. 'expiry', 0, 31, 'WITHSCORES')
  for i = 1, #first, 2 do
    if Jobs.tenant_of(first[i]) == name then return math.max(1, math.ceil((first[i + 1] - now_ms) / 1000)) end
  end
  return nil
end

-- Return nil if the tenant may store another job, otherwise the rejection: {over, cap, its value, seconds, bytes
-- stored, event}. The event is 'expiry', or '' if the time of the next purge is unknown. words[from] is the name of the
-- job's first field; its value and the other fields follow.
function Caps.check_stored_bytes(name, words, from, now_ms)
  local most, bytes = Tenants.share_of(name).caps.stored_bytes, 0
  if not most then return nil end
  for i = from, #words, 2 do
    if SIZED_FIELDS[words[i]] then bytes = bytes + #words[i + 1] end
  end
  local stored = read_number('HGET', PREFIX .. 'stored', name)
  if stored + bytes <= most then return nil end
  local seconds = estimate_purge_seconds(name, now_ms)
  local event = seconds and 'expiry' or ''
  return { 'over', 'max_stored_bytes', decimal(most), decimal(seconds or 3600), decimal(stored), event }
end

-- Return the tenant's cap on stored bytes, or nil.
function Caps.max_stored_bytes(tenant)
  return Tenants.are_registered() and Tenants.has_caps(tenant) and Tenants.share_of(tenant).caps.stored_bytes
end

local function read_files_size(tenant) return read_number('HGET', PREFIX .. 'filesums', tenant .. '|stored|bytes') end

-- Count the bytes of artifacts towards the cap on stored bytes.
function Caps.update_files_size(tenant)
  if Caps.max_stored_bytes(tenant) then Caps.set_size(tenant, '|files', read_files_size(tenant)) end
end

-- Count the bytes of workflows towards the cap on stored bytes.
function Caps.update_workflows_size(tenant)
  if not Caps.max_stored_bytes(tenant) then return end
  Caps.set_size(tenant, '|workflows', read_number('HGET', PREFIX .. 'workflowbytes', tenant))
end

-- DAILY tenant ... -> {milliseconds until the next day, caps of each tenant as name=used/most,name=used/most}
-- Read only.
local function daily(args)
  local now_ms = now()
  local answer = { decimal(DAY_MS - now_ms % DAY_MS) }
  for _, name in ipairs(args) do
    local rows, caps = {}, Tenants.are_registered() and Tenants.has_caps(name)
    for what, most in pairs(caps and Tenants.share_of(name).caps or {}) do
      local is_stored = what == 'stored_bytes'
      local used = is_stored and read_number('HGET', PREFIX .. 'stored', name)
        or most - Caps.remaining(name, what, now_ms)
      rows[#rows + 1] = what .. '=' .. decimal(used) .. '/' .. decimal(most)
    end
    answer[#answer + 1] = table.concat(rows, ',')
  end
  return answer
end

-- RECOUNT tenant id ... -> 1
-- Update the sizes of these jobs for tenants with a cap on stored bytes. `tenant` is the owner of the list that
-- contained the IDs, which can name deleted jobs; '' for IDs from elsewhere. Without IDs, set the tenant's sum to the
-- sum of its jobs, artifacts (|files) and workflows (|workflows).
local function recount(args)
  local name = args[1]
  local caps = Tenants.are_registered() and name ~= '' and Tenants.has_caps(name)
  local function remeasure(id)
    local row = redis.pcall('HMGET', job_key(id), 'state', 'tenant')
    local owner = row[1] and row[2]
    if owner then Caps.update_job_size(owner, id) end
    if caps and name ~= owner then Caps.set_size(name, id, 0) end
  end
  for i = 2, #args do
    if args[i] ~= '|files' and args[i] ~= '|workflows' then remeasure(args[i]) end
  end
  if caps and #args == 1 then
    Caps.update_files_size(name)
    Caps.update_workflows_size(name)
    local sum = 0
    for _, bytes in ipairs(call('HVALS', PREFIX .. 'stored:' .. name)) do sum = sum + (tonumber(bytes) or 0) end
    call('HSET', PREFIX .. 'stored', name, decimal(sum))
  end
  return 1
end

register({
  { 'daily', daily, 'no-writes' },
  { 'recount', recount, 'allow-oom' },
})
