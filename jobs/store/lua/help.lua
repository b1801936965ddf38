-- Help: running jobs that one worker holds, so that another worker can help with them.

--- Number of held jobs that are read at a time.
local HELD_AT_ONCE = 16

local function virtual_finish_of(job)
  if not Tenants.are_registered() then return 0 end
  return read_number('HGET', PREFIX .. 'finish:' .. Queues.class_of(job.queue), job.tenant)
end

-- Return whether this worker should help `job` instead of `other`: by priority, then by virtual time of their tenants,
-- then by number of holders.
local function is_before(request, job, other)
  local rank = request.rank
  if not other or rank[job.queue] ~= rank[other.queue] then return not other or rank[job.queue] < rank[other.queue] end
  if job.tenant ~= other.tenant then
    local finish, other_finish = virtual_finish_of(job), virtual_finish_of(other)
    if finish ~= other_finish then return finish < other_finish end
  end
  return job.holders < other.holders
end

-- Return the tenants that have held jobs in a queue and a virtual time below `most`, by this time, and a table of these
-- times by name.
local function list_holding_tenants(queue, most)
  local all, names, finish_of = call('SMEMBERS', PREFIX .. 'holding:' .. queue), {}, {}
  if not all[1] or not Tenants.are_registered() then return all, finish_of end
  local finish = call('HMGET', PREFIX .. 'finish:' .. Queues.class_of(queue), unpack(all))
  for i, name in ipairs(all) do
    finish_of[name] = tonumber(finish[i] or 0) or 0
    if finish_of[name] < most then names[#names + 1] = name end
  end
  table.sort(names, function(left, right) return finish_of[left] < finish_of[right] end)
  return names, finish_of
end

local function can_help(request, job)
  return job.state == 'running' and Requests.can_compute(request, job) and Leases.is_leasable(job, request.now_ms)
    and not Requests.is_exhausted(request, job)
end

-- Return the tenant's held job with the fewest holders, among those that this worker can help with.
local function find_least_held(request, queue, name)
  local key, from = PREFIX .. 'held:' .. queue .. ':' .. name, 0
  while true do
    local ids = call('ZRANGE', key, decimal(from), decimal(from + HELD_AT_ONCE - 1))
    for _, id in ipairs(ids) do
      local job = Jobs.find(id, Jobs.FOR_SLOT)
      if job and can_help(request, job) then return job end
    end
    if #ids == 0 and from == 0 then call('SREM', PREFIX .. 'holding:' .. queue, name) end
    if #ids < HELD_AT_ONCE then return nil end
    from = from + HELD_AT_ONCE
  end
end

-- Return whether a job of a rank before `above` is held. Usually none is, and one call suffices.
local function has_held_jobs(request, above)
  local keys = Requests.held_keys_before(request, above)
  return keys[1] and call('EXISTS', unpack(keys)) > 0
end

-- Return the running job that this worker should help with. Its rank is before `above`, and the virtual time of its
-- tenant is less than `most`.
function Help.find(request, above, most)
  if not has_held_jobs(request, above) then return nil end
  local best
  for _, queue in ipairs(request.queues) do
    local rank = request.rank[queue]
    if rank < above and rank >= request.first_rank and (not best or rank <= request.rank[best.queue]) then
      local names, finish_of = list_holding_tenants(queue, most or math.huge)
      for _, name in ipairs(names) do
        local finish = finish_of[name] or 0
        local is_after_best = best and rank == request.rank[best.queue] and finish > virtual_finish_of(best)
        if is_after_best then break end
        local job = not Requests.is_tenant_unavailable(request, name) and find_least_held(request, queue, name)
        if job and is_before(request, job, best) then best = job end
      end
    end
  end
  return best
end
