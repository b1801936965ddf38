-- Order: choice of the next pending job if several tenants wait or jobs are aged. See docs/lease-protocol.md.

-- Return a job that only lacks its result. It needs no GPU seconds, which its tenant has used up.
local function find_finishing(request, queue, name)
  for _, id in ipairs(call('ZRANGE', PREFIX .. 'in:finishing', 0, 31)) do
    local position = call('ZSCORE', PREFIX .. 'tenant_pending:' .. queue .. ':' .. name, id)
    local job = position and Jobs.find(id)
    if job and job.state == 'finishing' and Requests.can_compute(request, job) then return job, tonumber(position) end
  end
end

-- Count tenants that cannot be served. As many additional tenants are read, so that these do not hide others.
local function count_capped()
  local count = #Tenants.list_capped()
  for _ in pairs(Tenants.required_labels()) do count = count + 1 end
  return count
end

-- Return a tenant's first job in a queue that this worker can compute, and its position.
local function find_head(request, queue, name)
  if not Requests.is_tenant_unavailable(request, name) then return Requests.find_first(request, queue, name) end
  if Requests.is_excluded(request, name) or Tenants.is_capped(name) then return nil end
  return find_finishing(request, queue, name)
end

-- Call consider(job, position, virtual time) for the first job of each tenant in a queue, by virtual time, until it
-- returns true. Usually the first tenant suffices, and the virtual times of others are not read, because Redis formats
-- them slowly.
local function visit_heads(request, queue, consider)
  if Programs.is_program_queue(queue) then Tenants.refresh_order(queue) end
  local max_heads = MAX_TENANTS_READ + count_capped()
  local first = call('ZRANGE', PREFIX .. 'order:' .. queue, '0', '0', 'WITHSCORES')
  if not first[1] then return end
  local function visit(name, finish)
    local job, position = find_head(request, queue, name)
    return job and consider(job, position, tonumber(finish))
  end
  if visit(first[1], first[2]) then return end
  local heads = call('ZRANGE', PREFIX .. 'order:' .. queue, '0', decimal(max_heads - 1), 'WITHSCORES')
  for i = 1, #heads, 2 do
    if heads[i] ~= first[1] and visit(heads[i], heads[i + 1]) then return end
  end
end

-- Return the pending job of this rank whose tenant has the lowest virtual time, its queue and that time. Among equals,
-- the longest-waiting job is first.
function Order.find_fairest(request, rank)
  local best, earliest, finish_time, best_queue
  for _, queue in ipairs(request.subscription.at_rank[rank]) do
    visit_heads(request, queue, function(job, position, finish)
      if not best or finish < finish_time or (finish == finish_time and position < earliest) then
        best, earliest, finish_time, best_queue = job, position, finish, queue
      end
      return true
    end)
  end
  return best, best_queue, finish_time
end

-- Advance the clock of a priority to the virtual time of the taken job. Tenants that could not be served meanwhile gain
-- no credit.
function Order.advance_clock(request, class, finish_time)
  local clock = PREFIX .. 'virtual:' .. class
  if finish_time > read_number('GET', clock) then call('SET', clock, string.format('%.17g', finish_time)) end
  for _, member in ipairs(Tenants.list_capped()) do
    local device, name = string.match(member, '^(gpu):(.*)$')
    name = name or member
    local behind = finish_time - read_number('HGET', PREFIX .. 'finish:' .. class, name)
    if behind > 0 and (not device or request.device == device) then Tenants.advance(class, name, behind) end
  end
end

-- Return the longest-waiting aged first job of all priorities, and its queue. `since` has, by queue, the time before
-- which jobs are aged.
local function find_oldest_aged(request, since)
  local best, earliest, best_queue
  for _, queue in ipairs(request.queues) do
    local function consider(job, position)
      local is_aged = since[queue] and math.max(job.created, job.since) <= since[queue]
      if is_aged and (not best or position < earliest) then best, earliest, best_queue = job, position, queue end
    end
    if since[queue] and Tenants.are_registered() then
      visit_heads(request, queue, consider)
    elseif since[queue] then
      local job, position = Requests.find_first(request, queue)
      if job then consider(job, position) end
    end
  end
  return best, best_queue
end

-- Return an aged job that this worker can take, and its queue, on one of AGED_INTERVAL requests of each worker.
function Order.find_aged(request)
  local since, has_some = {}, false
  for at, value in ipairs(call('HMGET', PREFIX .. 'aged', unpack(request.queues))) do
    since[request.queues[at]] = tonumber(value or nil)
    has_some = has_some or since[request.queues[at]] ~= nil
  end
  if not has_some then return nil end
  local requests = call('HINCRBY', PREFIX .. 'aging', request.worker, 1)
  if requests % AGED_INTERVAL == 1 then return find_oldest_aged(request, since) end
end
