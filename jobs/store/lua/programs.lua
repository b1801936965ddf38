-- Programs: their requirements, and the resources of runners.

--- Resources of a runner that a unit uses.
Programs.AMOUNTS = { 'cpus', 'memory_mib', 'gpus', 'lanes' }
--- Milliseconds that a lease of several units lasts in addition to its current unit. After this time, other runners get
--- its remaining units.
local LONG_LEASE_MS = 2000

-- Return whether a queue is for runners. Only these queues contain programs.
function Programs.is_program_queue(queue) return string.sub(queue, 1, 7) == 'runner.' end

function Programs.is_program(job) return Programs.is_program_queue(job.queue) end

-- Return whether a job is a replica of a service. Replicas have no end, use no slot of their runner and are named
-- v-SERVICE-NUMBER.
function Programs.is_replica(id) return string.sub(id, 1, 2) == 'v-' end

-- Return the requirements of a program as JSON; '' if it has none, and for other jobs.
function Programs.requirements_of(job)
  if not Programs.is_program(job) then return '' end
  if rawget(job, 'needed') == nil then job.needed = call('HGET', job_key(job.id), 'requirements') or '' end
  return job.needed
end

-- ct:shapes and ct:shapes:{tenant} count unfinished jobs by requirements, for all tenants and for one.
function Programs.count_shape(name, requirements, change)
  if requirements == '' or change == 0 then return end
  for _, shapes in ipairs({ PREFIX .. 'shapes', PREFIX .. 'shapes:' .. name }) do
    if tonumber(call('ZINCRBY', shapes, change, requirements)) <= 0 then call('ZREM', shapes, requirements) end
  end
end

-- Return a compute capability as a comparable number. jobs/hosts/requirements.py has the same rules as this function
-- and the next ones.
local function parse_capability(text)
  local major, minor = string.match(text or '', '^(%d+)%.?(%d*)$')
  return major and major * 1000 + (tonumber(minor) or 0) or 0
end

local function count_fitting_gpus(offer, required)
  local count, least = 0, parse_capability(required.compute_capability)
  for _, gpu in ipairs(offer.gpus or {}) do
    local has_memory = gpu.memory_mib >= (required.gpu_memory_mib or 0)
    if has_memory and parse_capability(gpu.compute_capability) >= least then count = count + 1 end
  end
  return count
end

local function count_required_gpus(required)
  return required.gpus or ((required.gpu_memory_mib or required.compute_capability) and 1 or 0)
end

local function has_labels(offer, required)
  local needs = {}
  for _, label in ipairs(offer.labels or {}) do needs[label] = true end
  for _, label in ipairs(required or {}) do
    if not needs[label] then return false end
  end
  return true
end

local function meets_requirements(offer, requirements)
  local required = cjson.decode(requirements)
  return count_fitting_gpus(offer, required) >= count_required_gpus(required)
    and (offer.cpus or 0) >= (required.cpus or 0)
    and (offer.memory_mib or 0) >= (required.memory_mib or 0) and (required.host or offer.host) == offer.host
    and has_labels(offer, required.labels)
end

-- Return whether an offer meets requirements (JSON). Invalid requirements are never met.
function Programs.is_satisfied(offer, requirements)
  if requirements == '' then return true end
  local ok, answer = pcall(meets_requirements, offer, requirements)
  return ok and answer
end

-- Return the resources that a unit of a job with these requirements (JSON) uses on a runner, and the parsed
-- requirements. runner/ledger.py has the same rules.
function Programs.measure_unit(id, requirements, capacity)
  local ok, required = pcall(cjson.decode, requirements ~= '' and requirements or '{}')
  if not ok or type(required) ~= 'table' then required = {} end
  local lanes = Programs.is_replica(id) and 0 or 1
  local taken = { cpus = tonumber(required.cpus) or lanes * capacity.cpus / capacity.lanes,
    memory_mib = tonumber(required.memory_mib) or 0, gpus = tonumber(count_required_gpus(required)) or 0,
    lanes = lanes }
  return taken, required
end

-- Return the resources of a runner, and the resources used by each of its leases with the latest end of the lease (nil
-- if its units have no timeout). Leases of replicas, which have no end, are in `replicas`. Return nil if the runner's
-- record is unreadable.
function Programs.read_capacity(worker, now_ms)
  local row = call('HMGET', PREFIX .. 'worker:' .. worker, 'offer', 'lanes', 'isolation')
  local ok, offer = pcall(cjson.decode, row[1] or '')
  if not ok or type(offer) ~= 'table' then return nil end
  local capacity = { offer = offer, cpus = tonumber(offer.cpus) or 0, memory_mib = tonumber(offer.memory_mib) or 0,
    lanes = math.max(tonumber(row[2] or 1) or 1, 1), shared = row[3] ~= 'uid', leases = {},
    replicas = {} }
  for _, member in ipairs(call('SMEMBERS', PREFIX .. 'leased:' .. worker)) do
    local id, token = string.match(member, '^(.-)|(.*)$')
    local lease = id and Leases.read(id, token)
    if lease then
      local values = call('HMGET', job_key(id), 'requirements', 'unit_ms', 'tenant')
      local unit, taken = tonumber(values[2] or nil), Programs.measure_unit(id, values[1] or '', capacity)
      taken.tenant = values[3]
      local latest = unit and math.min(lease.granted + (lease.hi - lease.lo) * unit, now_ms + LONG_LEASE_MS + unit)
      taken.ends = latest and math.max(now_ms, latest) or nil
      table.insert(Programs.is_replica(id) and capacity.replicas or capacity.leases, taken)
    end
  end
  return capacity
end

-- Return whether a runner has capacity for a unit in addition to these leases and its replicas.
function Programs.has_capacity(capacity, leases, needs, tenant, required)
  local free = { cpus = capacity.cpus, memory_mib = capacity.memory_mib, lanes = capacity.lanes,
    gpus = count_fitting_gpus(capacity.offer, required) }
  for _, requirements in ipairs({ leases, capacity.replicas }) do
    for _, each in ipairs(requirements) do
      if capacity.shared and each.tenant ~= tenant then return false end
      for _, name in ipairs(Programs.AMOUNTS) do free[name] = free[name] - each[name] end
    end
  end
  for _, name in ipairs(Programs.AMOUNTS) do
    if needs[name] > 0 and free[name] + 1e-3 < needs[name] then return false end
  end
  return true
end

-- Return whether a runner has capacity for a job after all leases except those of replicas have ended.
function Programs.could_fit(capacity, job)
  local needs, required = Programs.measure_unit(job.id, Programs.requirements_of(job), capacity)
  return Programs.has_capacity(capacity, {}, needs, job.tenant, required)
end

-- Return the time at which a runner has capacity for a job according to the timeouts of its leases, the number of
-- leases that must end first, and the number of those without a timeout. Leases without a timeout count as last, but
-- can end at any time.
function Programs.estimate_start(capacity, job, now_ms)
  local needs, required = Programs.measure_unit(job.id, Programs.requirements_of(job), capacity)
  local left, start, unbounded = { unpack(capacity.leases) }, now_ms, 0
  table.sort(left, function(one, other) return (one.ends or math.huge) > (other.ends or math.huge) end)
  while #left > 0 and not Programs.has_capacity(capacity, left, needs, job.tenant, required) do
    local last = table.remove(left)
    if last.ends then start = math.max(start, last.ends) else unbounded = unbounded + 1 end
  end
  return start, #capacity.leases - #left, unbounded
end
