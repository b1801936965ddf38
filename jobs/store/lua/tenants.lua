-- Tenants: weights, caps and required labels, and the order in which tenants are served.

-- Return whether tenants are registered. Otherwise there is only `default`, without caps or tenant keys, and jobs are
-- served in the order of their positions. Registering the first tenant also registers `default`.
function Tenants.are_registered()
  if State.tenants_exist == nil then State.tenants_exist = call('EXISTS', PREFIX .. 'shares') == 1 end
  return State.tenants_exist
end

-- Return a tenant's weight and caps. max_lanes and max_jobs are 0 without a cap. `caps` is nil, or has limits by name:
-- units|kind and device_ms per day, named as in ct:usage, and stored_bytes.
function Tenants.share_of(name)
  if not State.shares[name] then
    local stored, caps = call('HMGET', PREFIX .. 'shares', name, name .. '|caps'), nil
    local weight, lanes, jobs = string.match(stored[1] or '', '^(%d+)|(%d+)|(%d+)$')
    for what, most in string.gmatch(stored[2] or '', '([^=,]+)=(%d+)') do
      caps = caps or {}
      caps[what] = tonumber(most)
    end
    State.shares[name] = { weight = math.max(tonumber(weight or 1), 1), max_lanes = tonumber(lanes or 0),
      max_jobs = tonumber(jobs or 0), caps = caps }
  end
  return State.shares[name]
end

-- Return the labels that hosts need to compute for a tenant, by tenant. ct:shares has them in |requires as
-- tenant=label+label,....
function Tenants.required_labels()
  if not State.required_labels then
    State.required_labels = {}
    for name, labels in string.gmatch(call('HGET', PREFIX .. 'shares', '|requires') or '', '([^=,]+)=([^,]+)') do
      State.required_labels[name] = labels
    end
  end
  return State.required_labels
end

-- Return whether a host with these labels (comma-separated) may not compute for a tenant. Without labels, return
-- whether any host may not.
function Tenants.excludes(name, labels)
  local wanted = Tenants.required_labels()[name]
  if not wanted or not labels then return wanted ~= nil end
  for label in string.gmatch(wanted, '[^+]+') do
    if not string.find(',' .. labels .. ',', ',' .. label .. ',', 1, true) then return true end
  end
  return false
end

-- Return the value of |requires in ct:shares after a change of a tenant's labels (joined by +, '' for none); nil if it
-- stays the same.
function Tenants.format_required_labels(name, labels)
  local wanted, rows = Tenants.required_labels(), {}
  if (wanted[name] or '') == labels then return nil end
  wanted[name] = labels ~= '' and labels or nil
  for each, text in pairs(wanted) do rows[#rows + 1] = each .. '=' .. text end
  table.sort(rows)
  return table.concat(rows, ',')
end

-- Notify idle workers once about a job that not every worker may compute. A worker that may not compute it does not
-- notify others.
function Tenants.notify_idle_workers(queue)
  local idle = call('ZCARD', PREFIX .. 'workers') - call('LLEN', 'rq:queue:' .. queue)
  Queues.notify(queue, math.min(idle, MAX_TENANTS_READ))
end

-- Format a virtual time exactly. Its unit is milliseconds of one lane divided by the tenant's weight.
local function format_double(number) return string.format('%.17g', number) end

-- Add a tenant to ct:order:{queue}. ct:finish has the virtual time at which the tenant's last work ends and its next
-- work starts. A returning tenant starts at the clock of the priority, ct:virtual.
local function add_to_order(queue, name)
  local class = Queues.class_of(queue)
  local finish = read_number('HGET', PREFIX .. 'finish:' .. class, name)
  local clock = read_number('GET', PREFIX .. 'virtual:' .. class)
  if clock > finish then call('HSET', PREFIX .. 'finish:' .. class, name, format_double(clock)) end
  call('ZADD', PREFIX .. 'order:' .. queue, 'NX', format_double(math.max(finish, clock)), name)
end

-- Charge a tenant for milliseconds of one lane. Negative values correct an estimate.
function Tenants.bill(job, ms)
  if ms == 0 then return end
  local class, program = Queues.class_of(job.queue), Programs.is_program(job)
  local cost = format_double(ms / Tenants.share_of(job.tenant).weight)
  local finish = call('HINCRBYFLOAT', PREFIX .. 'finish:' .. class, job.tenant, cost)
  local function order_key(device) return PREFIX .. 'order:' .. device .. '.' .. class end
  if program then call('ZADD', order_key('runner'), 'XX', finish, job.tenant) end
  if call('EXISTS', order_key('gpu'), order_key('any'), order_key('cpu')) == 0 then return end
  for _, device in ipairs({ 'gpu', 'any', 'cpu' }) do call('ZADD', order_key(device), 'XX', finish, job.tenant) end
end

-- Copy ct:finish to ct:order of a runner queue. Work on other devices does not update this ct:order, which would cost
-- an additional call.
function Tenants.refresh_order(queue)
  local names = call('ZRANGE', PREFIX .. 'order:' .. queue, 0, -1)
  if #names < 2 then return end
  local words = {}
  for i, finish in ipairs(call('HMGET', PREFIX .. 'finish:' .. Queues.class_of(queue), unpack(names))) do
    words[2 * i - 1], words[2 * i] = finish or '0', names[i]
  end
  call('ZADD', PREFIX .. 'order:' .. queue, unpack(words))
end

function Tenants.enqueue(queue, name, id, position)
  call('ZADD', PREFIX .. 'tenant_pending:' .. queue .. ':' .. name, position, id)
  if not call('ZSCORE', PREFIX .. 'order:' .. queue, name) then add_to_order(queue, name) end
end

function Tenants.dequeue(queue, name, id)
  local turns = PREFIX .. 'tenant_pending:' .. queue .. ':' .. name
  if call('ZREM', turns, id) == 0 or call('EXISTS', turns) == 1 then return end
  call('ZREM', PREFIX .. 'order:' .. queue, name)
end

-- Count jobs in a queue without wake-ups, because their tenants use all their lanes or because hosts with these labels
-- may not compute for them. Without labels: because any host may not.
function Tenants.count_capped(queue, labels)
  local count, counted = 0, {}
  local function count_tenant(name)
    if counted[name] then return end
    counted[name] = true
    count = count + call('ZCARD', PREFIX .. 'tenant_pending:' .. queue .. ':' .. name)
  end
  for _, member in ipairs(call('SMEMBERS', PREFIX .. 'capped')) do
    local device, name = string.match(member, '^(gpu):(.*)$')
    if not device or string.find(queue, '^[ga]') then count_tenant(name or member) end
  end
  for name in pairs(Tenants.required_labels()) do
    if Tenants.excludes(name, labels) then count_tenant(name) end
  end
  return count
end

-- Return whether a tenant has caps on daily usage or stored bytes.
function Tenants.has_caps(name) return Tenants.share_of(name).caps ~= nil end

-- Return the number of lanes that work for a tenant: its active leases.
function Tenants.count_lanes(name, now_ms)
  return call('ZCOUNT', PREFIX .. 'lanes:' .. name, '(' .. decimal(now_ms), '+inf')
end

function Tenants.is_limited(name) return Tenants.share_of(name).max_lanes > 0 end

-- Return the members of ct:capped as a list, which also has `true` for each member. NEXT reads it once.
function Tenants.list_capped()
  if not State.capped then
    State.capped = call('SMEMBERS', PREFIX .. 'capped')
    for _, member in ipairs(State.capped) do State.capped[member] = true end
  end
  return State.capped
end

-- Add a member to ct:capped, or remove it. Return whether this changed ct:capped.
function Tenants.set_capped(command, member)
  State.capped = nil
  return call(command, PREFIX .. 'capped', member) == 1
end

-- Return whether a tenant uses all its lanes.
function Tenants.is_capped(name)
  if not Tenants.are_registered() then return false end
  if State.capped then return State.capped[name] == true end
  return call('SISMEMBER', PREFIX .. 'capped', name) == 1
end

-- Return the number of additional lanes that a tenant may use.
function Tenants.free_lanes(name, now_ms)
  return Tenants.is_limited(name) and Tenants.share_of(name).max_lanes - Tenants.count_lanes(name, now_ms) or math.huge
end

function Tenants.occupy(name, token, now_ms, ttl)
  call('ZADD', PREFIX .. 'lanes:' .. name, decimal(now_ms + ttl), token)
  if Tenants.is_limited(name) then Tenants.update_capped(name, now_ms) end
end

-- Update ct:capped, the tenants that use all their lanes. When a tenant leaves it, notify workers of its waiting jobs.
function Tenants.update_capped(name, now_ms)
  local most = Tenants.share_of(name).max_lanes
  if most > 0 and Tenants.count_lanes(name, now_ms) >= most then
    Tenants.set_capped('SADD', name)
  elseif Tenants.set_capped('SREM', name) then
    for _, queue in ipairs(ALL_QUEUES) do
      local waiting = call('ZCARD', PREFIX .. 'tenant_pending:' .. queue .. ':' .. name)
      if waiting > 0 and call('LLEN', 'rq:queue:' .. queue) < waiting then Queues.notify(queue, 1) end
    end
  end
end

-- Correct the bill of a lease to its actual time. Leases granted before tenants were registered are not billed.
function Tenants.adjust_bill(job, lease, ms)
  if not lease.billed then return end
  Tenants.bill(job, ms - lease.billed)
  lease.billed = ms
end

-- Advance the virtual time of a tenant in a priority.
function Tenants.advance(class, name, behind)
  Tenants.bill({ queue = 'any.' .. class, tenant = name }, behind * Tenants.share_of(name).weight)
end

-- Advance a tenant that no worker could serve to the clocks, so that it accumulates no credit.
function Tenants.reset_credit(name)
  for class in pairs(Queues.CLASSES) do
    local clock = read_number('GET', PREFIX .. 'virtual:' .. class)
    local behind = clock - read_number('HGET', PREFIX .. 'finish:' .. class, name)
    if behind > 0 then Tenants.advance(class, name, behind) end
  end
end

-- Remove the cached weight and caps of a tenant.
function Tenants.invalidate(name) State.shares[name] = nil end

-- Assign all jobs to `default` when the first tenant is registered.
local function split_default()
  for _, queue in ipairs(ALL_QUEUES) do
    local turns = PREFIX .. 'tenant_pending:' .. queue .. ':default'
    call('ZUNIONSTORE', turns, 1, PREFIX .. 'pending:' .. queue)
    call('DEL', PREFIX .. 'order:' .. queue)
    if call('EXISTS', turns) == 1 then add_to_order(queue, 'default') end
  end
  local admitted = PREFIX .. 'admitted:default'
  call('ZUNIONSTORE', admitted, 3, PREFIX .. 'in:queued', PREFIX .. 'in:running', PREFIX .. 'in:finishing')
  call('ZUNIONSTORE', PREFIX .. 'blocked:default', 1, PREFIX .. 'in:blocked')
end

-- TENANT name weight max_lanes max_jobs caps text tenant token labels -> new | changed
-- Register a tenant or change it. max_lanes and max_jobs are 0 without a cap. `caps` has further caps as
-- name=most,name=most; `text` describes them for the audit log. `labels` are required of hosts, joined by +; '*' keeps
-- the current labels.
local function tenant(args)
  local name, weight, lanes, jobs, caps, text = args[1], args[2], args[3], args[4], args[5], args[6]
  local now_ms = now()
  if not Tenants.are_registered() then
    call('ZADD', PREFIX .. 'tenants', decimal(now_ms), 'default')
    call('HSET', PREFIX .. 'shares', 'default', '1|0|0')
    State.tenants_exist = true
    split_default()
  end
  local new = call('ZADD', PREFIX .. 'tenants', 'NX', decimal(now_ms), name) == 1
  local shares = weight .. '|' .. lanes .. '|' .. jobs
  local known = call('HMGET', PREFIX .. 'shares', name, name .. '|caps')
  local changed = new or known[1] ~= shares or (known[2] or '') ~= caps
  call('HSET', PREFIX .. 'shares', name, shares)
  call('HDEL', PREFIX .. 'shares', name .. '|caps')
  if caps ~= '' then call('HSET', PREFIX .. 'shares', name .. '|caps', caps) end
  Tenants.invalidate(name)
  if not string.find(caps, 'stored_bytes=', 1, true) then
    call('DEL', PREFIX .. 'stored:' .. name)
    call('HDEL', PREFIX .. 'stored', name)
  end
  local required = (args[9] or '*') ~= '*' and Tenants.format_required_labels(name, args[9])
  if required then
    changed = true
    call('HSET', PREFIX .. 'shares', '|requires', required)
    for _, queue in ipairs(ALL_QUEUES) do Queues.adjust_wakeups(queue) end
  end
  Tenants.update_capped(name, now_ms)
  Admission.admit_backlog(name, now_ms, 100)
  if changed then
    local outcome = 'weight ' .. weight .. ', max_lanes ' .. lanes .. ', max_jobs ' .. jobs .. text
    Audit.log(now_ms, args[7], args[8], 'tenant', name, outcome)
  end
  return new and 'new' or 'changed'
end

-- TENANT_REMOVE name tenant token -> ok | missing | default | busy | workflows | tokens | artifacts
-- Remove a tenant that has no unfinished jobs, workflows, tokens or artifacts. Otherwise, its tokens could be used
-- without caps.
local function tenant_remove(args)
  local name, now_ms = args[1], now()
  if call('ZSCORE', PREFIX .. 'tenants', name) == false then return 'missing' end
  if name == 'default' then return 'default' end
  if call('EXISTS', PREFIX .. 'admitted:' .. name, PREFIX .. 'backlog:' .. name, PREFIX .. 'blocked:' .. name) > 0 then
    return 'busy'
  end
  -- A later tenant with this name must not get its data.
  if call('EXISTS', PREFIX .. 'workflows:' .. name) == 1 then return 'workflows' end
  for _, id in ipairs(call('ZRANGE', PREFIX .. 'tokens', 0, -1)) do
    local token = call('HMGET', PREFIX .. 'token:' .. id, 'tenant', 'expires')
    local ends = tonumber(token[2] or 0) or 0
    if token[1] == name and (ends == 0 or ends > now_ms) then return 'tokens' end
  end
  -- This includes its files by their hashes. Files of deleted artifacts are released soon.
  local files = call('HGETALL', PREFIX .. 'files:' .. name)
  for i = 2, #files, 2 do
    local _, references = Files.parse(files[i])
    if references > 0 then return 'artifacts' end
  end
  if call('EXISTS', PREFIX .. 'artifacts:' .. name) == 1 then return 'artifacts' end
  for i = 1, #files, 2 do Files.drop_loose(name, files[i], now_ms) end
  for _, member in ipairs(call('ZRANGE', PREFIX .. 'uploads', 0, -1)) do
    if string.match(member, '^(.-)/') == name then call('ZADD', PREFIX .. 'uploads', 0, member) end
  end
  call('ZREM', PREFIX .. 'tenants', name)
  call('HINCRBY', PREFIX .. 'generations', name, 1)
  call('HDEL', PREFIX .. 'shares', name, name .. '|caps')
  local required = Tenants.are_registered() and Tenants.format_required_labels(name, '')
  if required then call('HSET', PREFIX .. 'shares', '|requires', required) end
  call('DEL', PREFIX .. 'lanes:' .. name)
  call('SREM', PREFIX .. 'capped', name, 'gpu:' .. name)
  call('DEL', PREFIX .. 'stored:' .. name)
  call('HDEL', PREFIX .. 'stored', name)
  -- This includes its secrets.
  call('DEL', PREFIX .. 'secrets:' .. name, PREFIX .. 'secret:' .. name)
  for _, id in ipairs(call('HVALS', PREFIX .. 'schedules:' .. name)) do
    call('ZREM', PREFIX .. 'schedules', id)
    call('DEL', PREFIX .. 'schedule:' .. id)
  end
  call('DEL', PREFIX .. 'schedules:' .. name)
  for _, id in ipairs(call('HVALS', PREFIX .. 'profiles:' .. name)) do Profiles.drop(id) end
  call('DEL', PREFIX .. 'profiles:' .. name)
  for _, id in ipairs(call('HVALS', PREFIX .. 'services:' .. name)) do
    call('HSET', PREFIX .. 'service:' .. id, 'stopped', 1, 'deleted', 1)
  end
  call('DEL', PREFIX .. 'services:' .. name)
  for _, state in ipairs({ 'pending', 'delivered', 'dead' }) do
    call('DEL', PREFIX .. 'deliveries:' .. name .. ':' .. state)
  end
  for class in pairs(Queues.CLASSES) do call('HDEL', PREFIX .. 'finish:' .. class, name) end
  Audit.log(now_ms, args[2], args[3], 'tenant', name, 'removed')
  return 'ok'
end

register({
  { 'tenant', tenant },
  { 'tenant_remove', tenant_remove, 'allow-oom' },
})
