-- Help: running jobs that some worker holds, and that another one may help with.

--- Held jobs that are read at a time.
local HELD_AT_ONCE = 16

local function finish_of(job)
  return Tenants.exist() and read_number('HGET', PREFIX .. 'finish:' .. Queues.class_of(job.queue), job.tenant) or 0
end

-- Whether this worker had better help job one than another: by priority, then by what their tenants were given, then by
-- holders.
local function is_before(turn, one, other)
  local rank = turn.rank
  if not other or rank[one.queue] ~= rank[other.queue] then return not other or rank[one.queue] < rank[other.queue] end
  if one.tenant ~= other.tenant then
    local given, given_to_other = finish_of(one), finish_of(other)
    if given ~= given_to_other then return given < given_to_other end
  end
  return one.holders < other.holders
end

-- Tenants that have held jobs in a queue, those first who were given least, and what they were given.
local function holding(queue)
  local names, given = call('SMEMBERS', PREFIX .. 'holding:' .. queue), {}
  if names[1] and Tenants.exist() then
    local finish = call('HMGET', PREFIX .. 'finish:' .. Queues.class_of(queue), unpack(names))
    for i, name in ipairs(names) do given[name] = tonumber(finish[i] or 0) or 0 end
    table.sort(names, function(one, other) return given[one] < given[other] end)
  end
  return names, given
end

local function may_help(turn, job)
  return job.state == 'running' and Turns.is_able(turn, job) and Leases.is_leasable(job, turn.now_ms)
    and not Turns.is_spent(turn, job)
end

-- The job with the fewest holders of a tenant's held ones in a queue that this worker may help.
local function least_held(turn, queue, name)
  local place, from = PREFIX .. 'held:' .. queue .. ':' .. name, 0
  while true do
    local ids = call('ZRANGE', place, decimal(from), decimal(from + HELD_AT_ONCE - 1))
    for _, id in ipairs(ids) do
      local job = Jobs.find(id)
      if job and may_help(turn, job) then return job end
    end
    if #ids == 0 and from == 0 then call('SREM', PREFIX .. 'holding:' .. queue, name) end
    if #ids < HELD_AT_ONCE then return nil end
    from = from + HELD_AT_ONCE
  end
end

-- Whether somebody has held a job of a rank before `above`: one call, since most often nobody has.
local function is_any_held(turn, above)
  local places = Turns.held_before(turn, above)
  return places[1] and call('EXISTS', unpack(places)) > 0
end

-- The running job that this worker may best help, of a rank before `above`, of tenants that were given less than
-- `most`.
function Help.find(turn, above, most)
  if not is_any_held(turn, above) then return nil end
  local best
  for _, queue in ipairs(turn.queues) do
    local place = turn.rank[queue]
    if place < above and (not best or place <= turn.rank[best.queue]) then
      local names, given = holding(queue)
      for _, name in ipairs(names) do
        local had = given[name] or 0
        local is_after_best = best and place == turn.rank[best.queue] and had > finish_of(best)
        if had >= (most or math.huge) or is_after_best then break end
        local job = not Turns.is_out(turn, name) and least_held(turn, queue, name)
        if job and is_before(turn, job, best) then best = job end
      end
    end
  end
  return best
end
