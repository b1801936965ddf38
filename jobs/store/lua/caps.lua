-- Further caps of tenants: of a day's use, and of stored bytes.

-- Stored bytes: ct:stored:{tenant} has the size of each job of a tenant with that cap, ct:stored the sums. A job's
-- size is that of its result and of these of its fields.
local SIZED_FIELDS = { spec = true, parameters = true, notes = true, after = true, after_any = true }

-- What a tenant may still use today of something that ct:usage counts; math.huge where nothing caps it.
function Caps.remaining(name, what, now_ms)
  local most, known = Tenants.share_of(name).caps[what], name .. ':' .. what
  if not most then return math.huge end
  if not State.remaining[known] then
    local field = decimal(math.floor(now_ms / DAY_MS)) .. '|' .. what
    State.remaining[known] = most - read_number('HGET', PREFIX .. 'usage:' .. name, field)
  end
  return State.remaining[known]
end

-- Whether a job waits for the next day: its tenant has used the units of its kind. One that is finishing needs none.
function Caps.is_exhausted(job, now_ms)
  return job.state ~= 'finishing' and Caps.remaining(job.tenant, 'units|' .. job.kind, now_ms) <= 0
end

-- Units that this call leases; what it leases further must leave room for them.
function Caps.reserve(job, units, now_ms)
  local left = Caps.remaining(job.tenant, 'units|' .. job.kind, now_ms)
  State.remaining[job.tenant .. ':units|' .. job.kind] = left - units
end

-- ct:capped has gpu:{tenant} of each tenant that has used the GPU seconds of a day: its jobs ring for no GPU worker.
function Caps.is_gpu_exhausted(name, now_ms)
  if Caps.remaining(name, 'device_ms', now_ms) > 0 then return false end
  call('SADD', PREFIX .. 'capped', 'gpu:' .. name)
  return true
end

-- ct:deferred:{tenant}:{kind}: jobs that wait for the next day, in their turn; ct:deferred says which of these zsets
-- may hold something.
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

-- Notes the size of what is stored of a job, its specification and its result; 0 for a job that is not there.
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

-- Notes the size of what is stored of a job, where its tenant has a cap on that.
function Caps.update_job_size(name, id)
  if Tenants.are_registered() and Tenants.has_caps(name) then measure(name, id) end
end

-- Seconds until the first of a tenant's jobs is purged, if it is among the first of all; else nil.
local function estimate_purge_seconds(name, now_ms)
  local first = call('ZRANGE', PREFIX .. 'expiry', 0, 31, 'WITHSCORES')
  for i = 1, #first, 2 do
    if Jobs.tenant_of(first[i]) == name then return math.max(1, math.ceil((first[i + 1] - now_ms) / 1000)) end
  end
  return nil
end

-- Why a tenant may not store a further job: {over, cap, its value, seconds, bytes stored, event}; nil when it may. The
-- event after these seconds is expiry; '' if it is unknown when the first job expires. The job's fields are
-- words[from], its name, and what follows it, and so on.
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

-- The cap of a tenant on stored bytes, or nil.
function Caps.max_stored_bytes(tenant)
  return Tenants.are_registered() and Tenants.has_caps(tenant) and Tenants.share_of(tenant).caps.stored_bytes
end

local function read_files_size(tenant) return read_number('HGET', PREFIX .. 'filesums', tenant .. '|stored|bytes') end

-- Makes what artifacts store part of what is compared with the cap on stored bytes, beside the sizes of jobs.
function Caps.update_files_size(tenant)
  if Caps.max_stored_bytes(tenant) then Caps.set_size(tenant, '|files', read_files_size(tenant)) end
end

-- Does so with what is kept of workflows beside their jobs.
function Caps.update_workflows_size(tenant)
  if not Caps.max_stored_bytes(tenant) then return end
  Caps.set_size(tenant, '|workflows', read_number('HGET', PREFIX .. 'workflowbytes', tenant))
end

-- DAILY tenant ... -> {milliseconds until the day turns, caps of each tenant as what=used/most,what=used/most}. Reads
-- only.
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

-- RECOUNT tenant id ... -> 1. Makes the sizes of these jobs what is stored of them, for tenants with a cap on stored
-- bytes. tenant: where the ids come from its own sizes, of which some may be of jobs that are gone; '' where not.
-- Without any id: makes the tenant's sum that of its sizes, its artifacts and its workflows, which are |files and
-- |workflows.
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
