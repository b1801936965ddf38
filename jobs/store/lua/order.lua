-- Order: whose pending job is next, if several tenants wait or jobs have aged. docs/lease-protocol.md, Order and Aging.

-- A job whose result alone is missing: that needs no GPU seconds, of which its tenant has none left.
local function finishing(turn, queue, name)
  for _, id in ipairs(call('ZRANGE', PREFIX .. 'in:finishing', 0, 31)) do
    local position = call('ZSCORE', PREFIX .. 'turns:' .. queue .. ':' .. name, id)
    local job = position and Jobs.find(id)
    if job and job.state == 'finishing' and Turns.is_able(turn, job) then return job, tonumber(position) end
  end
end

-- Tenants that cannot be served and would hide the others.
local function count_capped(turn)
  if not turn.capped_count then
    turn.capped_count = call('SCARD', PREFIX .. 'capped')
    for _ in pairs(Tenants.required_labels()) do turn.capped_count = turn.capped_count + 1 end
  end
  return turn.capped_count
end

-- Heads of tenants in a queue, those first who were given least: calls look(job, turn, virtual time) until it is true.
local function each_head(turn, queue, look)
  if Programs.are_in(queue) then Tenants.refresh(queue) end
  local most = TENANTS_TRIED + count_capped(turn)
  local heads = call('ZRANGE', PREFIX .. 'order:' .. queue, 0, most - 1, 'WITHSCORES')
  for i = 1, #heads, 2 do
    local name, job, position = heads[i], nil, nil
    if not Turns.is_out(turn, name) then
      job, position = Turns.first(turn, queue, name)
    elseif not Turns.is_barred(turn, name) and not Tenants.is_capped(name) then
      job, position = finishing(turn, queue, name)
    end
    if job and look(job, position, tonumber(heads[i + 1])) then return end
  end
end

-- The pending job of this rank whose tenant was given least; among equals, the one that has waited longest. Returns
-- the job, its queue, and what its tenant was given.
function Order.fairest(turn, rank)
  local best, earliest, given, where
  for _, queue in ipairs(turn.listened.at_rank[rank]) do
    each_head(turn, queue, function(job, position, finish)
      if not best or finish < given or (finish == given and position < earliest) then
        best, earliest, given, where = job, position, finish, queue
      end
      return true
    end)
  end
  return best, where, given
end

-- Moves the clock of a priority on to what was taken. Tenants that could not be served meanwhile have no credit when
-- they can.
function Order.advance(turn, class, given)
  local clock = PREFIX .. 'virtual:' .. class
  if given > read_number('GET', clock) then call('SET', clock, string.format('%.17g', given)) end
  for _, member in ipairs(call('SMEMBERS', PREFIX .. 'capped')) do
    local device, name = string.match(member, '^(gpu):(.*)$')
    name = name or member
    local behind = given - read_number('HGET', PREFIX .. 'finish:' .. class, name)
    if behind > 0 and (not device or turn.device == device) then Tenants.catch_up(class, name, behind) end
  end
end

-- The head that has waited longest of those that are aged, and its queue; of every priority. since: by queue.
local function find_aged(turn, since)
  local best, earliest, where
  for _, queue in ipairs(turn.queues) do
    local function look(job, position)
      local is_aged = since[queue] and math.max(job.created, job.since) <= since[queue]
      if is_aged and (not best or position < earliest) then best, earliest, where = job, position, queue end
    end
    if since[queue] and Tenants.exist() then
      each_head(turn, queue, look)
    elseif since[queue] then
      local job, position = Turns.first(turn, queue)
      if job then look(job, position) end
    end
  end
  return best, where
end

-- One turn in AGED_TURN of each worker is that of an aged job, if there is one that it may take: that, and its queue.
function Order.aged(turn)
  local since, has_some = {}, false
  for at, value in ipairs(call('HMGET', PREFIX .. 'aged', unpack(turn.queues))) do
    since[turn.queues[at]] = tonumber(value or nil)
    has_some = has_some or since[turn.queues[at]] ~= nil
  end
  if not has_some then return nil end
  if call('HINCRBY', PREFIX .. 'aging', turn.worker, 1) % AGED_TURN == 1 then return find_aged(turn, since) end
end
