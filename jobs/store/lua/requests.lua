-- Requests: the state of one NEXT, and the jobs that its worker can take.

--- Maximum number of first jobs of queues that one NEXT reads.
local MAX_READS = 100

--- Maximum number of parsed arguments in the cache: workers send the same queues and kinds each time.
local MAX_MEMOIZED = 100

-- Return a function that parses like `read` and caches its results, which must not be changed.
local function memoize(read)
  local known, count = {}, 0
  return function(text)
    if known[text] == nil then
      if count == MAX_MEMOIZED then known, count = {}, 0 end
      known[text], count = read(text), count + 1
    end
    return known[text]
  end
end

-- Return a worker's queues by rank (the first index of a queue with the same priority), and the keys that show at once
-- whether jobs are waiting or held there.
local read_queues = memoize(function(text)
  local subscription = { queues = cjson.decode(text), rank = {}, ranks = {}, at_rank = {}, pending = {}, upper = {},
    held_before = {}, special = { PREFIX .. 'shares', PREFIX .. 'aged', PREFIX .. 'unsupported' },
    runs_programs = string.find(text, '"runner.', 1, true) ~= nil }
  if subscription.runs_programs then table.insert(subscription.special, PREFIX .. 'unsupported_programs') end
  local rank_of = {}
  for i, queue in ipairs(subscription.queues) do
    local class = Queues.class_of(queue)
    local rank = rank_of[class] or i
    if rank == i then
      rank_of[class], subscription.at_rank[i] = i, {}
      table.insert(subscription.ranks, i)
    end
    subscription.rank[queue] = rank
    table.insert(subscription.at_rank[rank], queue)
    table.insert(subscription.pending, PREFIX .. 'pending:' .. queue)
  end
  subscription.middle = subscription.rank[subscription.queues[math.ceil((#subscription.queues + 1) / 2)]] or 1
  for _, queue in ipairs(subscription.queues) do
    if subscription.rank[queue] < subscription.middle then
      table.insert(subscription.upper, PREFIX .. 'pending:' .. queue)
      table.insert(subscription.upper, PREFIX .. 'holding:' .. queue)
    end
  end
  subscription.rare = { unpack(subscription.special) }
  for _, key in ipairs(subscription.upper) do table.insert(subscription.rare, key) end
  return subscription
end)

-- Return the version of each kind's model as text.
local read_kinds = memoize(function(text)
  local kinds = cjson.decode(text)
  for kind, version in pairs(kinds) do kinds[kind] = decimal(version) end
  return kinds
end)

-- Return keys that exist if a job of a rank before `above` has holders.
function Requests.held_keys_before(request, above)
  local keys = request.subscription.held_before[above]
  if not keys then
    keys = {}
    for _, queue in ipairs(request.queues) do
      if request.rank[queue] < above then keys[#keys + 1] = PREFIX .. 'holding:' .. queue end
    end
    request.subscription.held_before[above] = keys
  end
  return keys
end

-- Check whether tenants are registered, jobs are aged or unsupported, and the first half of the queues is empty.
-- Usually, the first command finds only the key of the tenants.
local function check_rare(request)
  local subscription = request.subscription
  local special, rare, upper = subscription.special, subscription.rare, subscription.upper
  -- A wake-up of the first half shows that a job waits there.
  local expects_upper = (request.rank[request.popped] or subscription.middle) < subscription.middle
  local count = call('EXISTS', unpack(expects_upper and special or rare))
  if count == 0 then State.tenants_exist = false end
  local expected = Tenants.are_registered() and 1 or 0
  local has_none = count == expected
  request.is_simple = has_none or (not expects_upper and call('EXISTS', unpack(special)) == expected)
  if request.is_simple then State.has_no_unsupported = true end
  local must_check = not has_none and not request.is_simple and upper[1]
  request.is_upper_empty = not expects_upper and (has_none or (must_check and call('EXISTS', unpack(upper)) == 0))
end

-- Return a request from the arguments of NEXT.
function Requests.new(args)
  local subscription = read_queues(args[6])
  local request = { worker = args[1], popped = args[2], lanes = tonumber(args[3]), ttl = tonumber(args[4]),
    slot_ttl = tonumber(args[5]), subscription = subscription, queues = subscription.queues, rank = subscription.rank,
    token = args[7], take = tonumber(args[8]), kinds = args[9] ~= '' and read_kinds(args[9]) or nil, now_ms = now(),
    reads_left = MAX_READS, runs_programs = subscription.runs_programs }
  check_rare(request)
  return request
end

-- Return whether a tenant requires labels that this worker's host does not have.
function Requests.is_excluded(request, name)
  return Tenants.are_registered() and Tenants.excludes(name, request.labels)
end

-- Return whether this is a GPU worker and the tenant has used its GPU seconds of the day.
function Requests.is_gpu_exhausted(request, name)
  return request.device == 'gpu' and Tenants.are_registered() and Tenants.has_caps(name)
    and Caps.is_gpu_exhausted(name, request.now_ms)
end

-- Return whether this worker may not compute a tenant's jobs now.
function Requests.is_tenant_unavailable(request, name)
  if Tenants.is_capped(name) or Requests.is_excluded(request, name) then return true end
  return Requests.is_gpu_exhausted(request, name)
end

-- Return whether a job must wait for the next day.
function Requests.is_exhausted(request, job)
  return Tenants.are_registered() and Tenants.has_caps(job.tenant) and Caps.is_exhausted(job, request.now_ms)
end

function Requests.supports(request, job)
  return not request.kinds or request.kinds[job.kind] == job.version
end

-- Return whether this worker has the resources that a job needs.
function Requests.can_compute(request, job)
  return Requests.supports(request, job) and (not request.runs_programs or Offers.can_take(request, job))
end

-- Return the first job in a queue, or of one tenant in the queue, that this worker can compute, and its position.
function Requests.find_first(request, queue, name)
  local index = name and PREFIX .. 'tenant_pending:' .. queue .. ':' .. name or PREFIX .. 'pending:' .. queue
  while request.reads_left > 0 do
    local head = call('ZRANGE', index, '0', '0', 'WITHSCORES')
    local id = head[1]
    if not id then return nil end
    local job = Jobs.find(id, Jobs.FOR_SLOT)
    local is_fit = job and Jobs.SCHEDULABLE[job.state] and (not name or job.tenant == name)
    local is_spent = is_fit and Requests.is_exhausted(request, job)
    if is_fit and Requests.can_compute(request, job) and not is_spent then return job, tonumber(head[2]) end
    if is_spent then
      Caps.defer(job, head[2])
    elseif is_fit then
      if request.runs_programs and not Offers.has_capacity(request, job) then
        call('ZADD', PREFIX .. 'unschedulable', 'NX', decimal(request.now_ms), id)
      end
      Queues.mark_unsupported(job)
    else
      if not State.broken[id] then Repairs.report(index) end
      Queues.dequeue(queue, name or Jobs.tenant_of(id), id)
    end
    request.reads_left = request.reads_left - 1
    Queues.adjust_wakeups(queue)
  end
end
