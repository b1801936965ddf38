-- Programs: what they require of runners, and what runners have.

--- What a unit takes of a runner.
Programs.AMOUNTS = { 'cpus', 'memory_mib', 'gpus', 'lanes' }
--- Milliseconds that a lease of several units takes, beside the unit that it is at: then others get those behind it.
local LONG_LEASE_MS = 2000

-- What a runner executes. Such jobs have a queue of runners, and never another.
function Programs.are_in(queue) return string.sub(queue, 1, 7) == 'runner.' end

function Programs.is_program(job) return Programs.are_in(job.queue) end

-- Whether a job is a replica of a service: it runs without an end, takes no slot of its runner, and is named
-- v-SERVICE-NUMBER.
function Programs.is_replica(id) return string.sub(id, 1, 2) == 'v-' end

-- JSON of what a program needs of its runner; '' for nothing, and for all other jobs.
function Programs.requirements_of(job)
  if not Programs.is_program(job) then return '' end
  if rawget(job, 'needed') == nil then job.needed = call('HGET', job_key(job.id), 'requirements') or '' end
  return job.needed
end

-- ct:shapes, and ct:shapes:TENANT: how many jobs that have not ended have each requirements, in all and of a tenant.
function Programs.count_shape(name, some, change)
  if some == '' or change == 0 then return end
  for _, shapes in ipairs({ PREFIX .. 'shapes', PREFIX .. 'shapes:' .. name }) do
    if tonumber(call('ZINCRBY', shapes, change, some)) <= 0 then call('ZREM', shapes, some) end
  end
end

-- What an offer of a runner has. jobs/hosts/requirements.py has the same rules.

-- A compute capability as a number that can be compared.
local function capability(text)
  local major, minor = string.match(text or '', '^(%d+)%.?(%d*)$')
  return major and major * 1000 + (tonumber(minor) or 0) or 0
end

local function count_fitting_gpus(offer, wanted)
  local count, least = 0, capability(wanted.compute_capability)
  for _, gpu in ipairs(offer.gpus or {}) do
    local has_memory = gpu.memory_mib >= (wanted.gpu_memory_mib or 0)
    if has_memory and capability(gpu.compute_capability) >= least then count = count + 1 end
  end
  return count
end

local function count_wanted_gpus(wanted)
  return wanted.gpus or ((wanted.gpu_memory_mib or wanted.compute_capability) and 1 or 0)
end

local function has_labels(offer, wanted)
  local own = {}
  for _, label in ipairs(offer.labels or {}) do own[label] = true end
  for _, label in ipairs(wanted or {}) do
    if not own[label] then return false end
  end
  return true
end

local function meets(offer, some)
  local wanted = cjson.decode(some)
  return count_fitting_gpus(offer, wanted) >= count_wanted_gpus(wanted) and (offer.cpus or 0) >= (wanted.cpus or 0)
    and (offer.memory_mib or 0) >= (wanted.memory_mib or 0) and (wanted.host or offer.host) == offer.host
    and has_labels(offer, wanted.labels)
end

-- Whether an offer meets requirements, given as JSON; none meets broken ones.
function Programs.is_met(offer, some)
  if some == '' then return true end
  local sound, answer = pcall(meets, offer, some)
  return sound and answer
end

-- What a unit of a job with these requirements, given as JSON, takes of a runner, and the requirements.
-- runner/ledger.py has the same rules.
function Programs.amounts(id, some, room)
  local sound, wanted = pcall(cjson.decode, some ~= '' and some or '{}')
  if not sound or type(wanted) ~= 'table' then wanted = {} end
  local lanes = Programs.is_replica(id) and 0 or 1
  local taken = { cpus = tonumber(wanted.cpus) or lanes * room.cpus / room.lanes,
    memory_mib = tonumber(wanted.memory_mib) or 0, gpus = tonumber(count_wanted_gpus(wanted)) or 0, lanes = lanes }
  return taken, wanted
end

-- What a runner has in all, and what each of its leases takes, with the time by which it ends; none if a unit of it
-- has no timeout. Leases of replicas, which never end, are in `staying`. nil: nothing can be read of it.
function Programs.read_room(worker, now_ms)
  local row = call('HMGET', PREFIX .. 'worker:' .. worker, 'offer', 'lanes', 'isolation')
  local sound, offer = pcall(cjson.decode, row[1] or '')
  if not sound or type(offer) ~= 'table' then return nil end
  local room = { offer = offer, cpus = tonumber(offer.cpus) or 0, memory_mib = tonumber(offer.memory_mib) or 0,
    lanes = math.max(tonumber(row[2] or 1) or 1, 1), shared = row[3] ~= 'uid', leases = {},
    staying = {} }
  for _, member in ipairs(call('SMEMBERS', PREFIX .. 'leased:' .. worker)) do
    local id, token = string.match(member, '^(.-)|(.*)$')
    local lease = id and Leases.read(id, token)
    if lease then
      local values = call('HMGET', job_key(id), 'requirements', 'unit_ms', 'tenant')
      local unit, taken = tonumber(values[2] or nil), Programs.amounts(id, values[1] or '', room)
      taken.tenant = values[3]
      local latest = unit and math.min(lease.granted + (lease.hi - lease.lo) * unit, now_ms + LONG_LEASE_MS + unit)
      taken.ends = latest and math.max(now_ms, latest) or nil
      table.insert(Programs.is_replica(id) and room.staying or room.leases, taken)
    end
  end
  return room
end

-- Whether there is room for this beside these leases and those of replicas.
function Programs.has_space(room, leases, own, tenant, wanted)
  local has = { cpus = room.cpus, memory_mib = room.memory_mib, lanes = room.lanes,
    gpus = count_fitting_gpus(room.offer, wanted) }
  for _, some in ipairs({ leases, room.staying }) do
    for _, each in ipairs(some) do
      if room.shared and each.tenant ~= tenant then return false end
      for _, name in ipairs(Programs.AMOUNTS) do has[name] = has[name] - each[name] end
    end
  end
  for _, name in ipairs(Programs.AMOUNTS) do
    if own[name] > 0 and has[name] + 1e-3 < own[name] then return false end
  end
  return true
end

-- Whether a runner has room for a job once all has ended there that has an end.
function Programs.will_have_room(room, job)
  local own, wanted = Programs.amounts(job.id, Programs.requirements_of(job), room)
  return Programs.has_space(room, {}, own, job.tenant, wanted)
end

-- When a runner has room for a job by the timeouts of what runs there, how many leases end before, and how many of
-- those have no timeout, which count as the last and may end at any moment.
function Programs.room_comes(room, job, now_ms)
  local own, wanted = Programs.amounts(job.id, Programs.requirements_of(job), room)
  local left, till, endless = { unpack(room.leases) }, now_ms, 0
  table.sort(left, function(one, other) return (one.ends or math.huge) > (other.ends or math.huge) end)
  while #left > 0 and not Programs.has_space(room, left, own, job.tenant, wanted) do
    local last = table.remove(left)
    if last.ends then till = math.max(till, last.ends) else endless = endless + 1 end
  end
  return till, #room.leases - #left, endless
end
