-- Turns: what one NEXT knows of the worker that asks, and the jobs that this worker may take.

--- Heads of queues at which one NEXT looks.
local LOOKS = 100

--- Arguments of which the library remembers what they mean: workers name the same queues and kinds each time.
local REMEMBERED = 100

-- Returns a function that does as `read`, and does it once for equal texts. Nobody may change what it returns.
local function remember(read)
  local known, count = {}, 0
  return function(text)
    if known[text] == nil then
      if count == REMEMBERED then known, count = {}, 0 end
      known[text], count = read(text), count + 1
    end
    return known[text]
  end
end

-- Queues in the order of a worker: those of each rank, which is the first place of a queue of their priority, and the
-- keys that tell at once whether something waits or is held there.
local read_queues = remember(function(text)
  local listened = { queues = cjson.decode(text), rank = {}, ranks = {}, at_rank = {}, pending = {}, upper = {},
    held_before = {}, runs_programs = string.find(text, '"runner.', 1, true) ~= nil }
  local rank_of = {}
  for i, queue in ipairs(listened.queues) do
    local class = Queues.class_of(queue)
    local rank = rank_of[class] or i
    if rank == i then
      rank_of[class], listened.at_rank[i] = i, {}
      table.insert(listened.ranks, i)
    end
    listened.rank[queue] = rank
    table.insert(listened.at_rank[rank], queue)
    table.insert(listened.pending, PREFIX .. 'pending:' .. queue)
  end
  listened.middle = listened.rank[listened.queues[math.ceil((#listened.queues + 1) / 2)]] or 1
  for _, queue in ipairs(listened.queues) do
    if listened.rank[queue] < listened.middle then
      table.insert(listened.upper, PREFIX .. 'pending:' .. queue)
      table.insert(listened.upper, PREFIX .. 'holding:' .. queue)
    end
  end
  return listened
end)

-- The version of each kind's model, as text.
local read_kinds = remember(function(text)
  local kinds = cjson.decode(text)
  for kind, version in pairs(kinds) do kinds[kind] = decimal(version) end
  return kinds
end)

-- Keys that are there if a worker has held a job of a rank before `above`.
function Turns.held_before(turn, above)
  local places = turn.listened.held_before[above]
  if not places then
    places = {}
    for _, queue in ipairs(turn.queues) do
      if turn.rank[queue] < above then places[#places + 1] = PREFIX .. 'holding:' .. queue end
    end
    turn.listened.held_before[above] = places
  end
  return places
end

-- Begins the turn of a worker, by the arguments of NEXT.
function Turns.new(args)
  local listened = read_queues(args[6])
  local turn = { worker = args[1], popped = args[2], lanes = tonumber(args[3]), ttl = tonumber(args[4]),
    slot_ttl = tonumber(args[5]), listened = listened, queues = listened.queues, rank = listened.rank,
    token = args[7], take = tonumber(args[8]), kinds = args[9] ~= '' and read_kinds(args[9]) or nil, now_ms = now(),
    looks = LOOKS, runs_programs = listened.runs_programs }
  -- Most often no tenant is registered, no job has aged and none is lacked: one call says so.
  turn.is_plain = call('EXISTS', PREFIX .. 'shares', PREFIX .. 'aged', PREFIX .. 'lacked') == 0
    and not (turn.runs_programs and call('EXISTS', PREFIX .. 'unfit') == 1)
  if turn.is_plain then State.tenants_exist, State.none_lacked = false, true end
  return turn
end

-- Whether a tenant requires labels which this worker's host has not.
function Turns.is_barred(turn, name) return Tenants.exist() and Tenants.bars(name, turn.labels) end

-- Whether this is a GPU, and the tenant has used the seconds of one that it may use in a day.
function Turns.has_no_gpu(turn, name)
  return turn.device == 'gpu' and Tenants.exist() and Tenants.has_caps(name) and Caps.without_gpu(name, turn.now_ms)
end

-- Whether this worker may not compute a tenant's jobs now.
function Turns.is_out(turn, name)
  if Tenants.is_capped(name) or Turns.is_barred(turn, name) then return true end
  local is_out = Turns.has_no_gpu(turn, name)
  if is_out then turn.capped_count = nil end -- it may be the first to say so
  return is_out
end

-- Whether a job waits for the next day.
function Turns.is_spent(turn, job)
  return Tenants.exist() and Tenants.has_caps(job.tenant) and Caps.is_spent(job, turn.now_ms)
end

function Turns.has_kind(turn, job)
  return not turn.kinds or turn.kinds[job.kind] == job.version
end

-- Whether this worker has what a job needs.
function Turns.is_able(turn, job)
  return Turns.has_kind(turn, job) and (not turn.runs_programs or Offers.is_able(turn, job))
end

-- The job of the earliest turn in a queue, or of one tenant in it, that this worker computes; and its turn.
function Turns.first(turn, queue, name)
  local index = name and PREFIX .. 'turns:' .. queue .. ':' .. name or PREFIX .. 'pending:' .. queue
  while turn.looks > 0 do
    local head = call('ZRANGE', index, 0, 0, 'WITHSCORES')
    local id = head[1]
    if not id then return nil end
    local job = Jobs.find(id)
    local is_fit = job and Jobs.PENDABLE[job.state] and (not name or job.tenant == name)
    local is_spent = is_fit and Turns.is_spent(turn, job)
    if is_fit and Turns.is_able(turn, job) and not is_spent then return job, tonumber(head[2]) end
    if is_spent then
      Caps.defer(job, head[2])
    elseif is_fit then
      if turn.runs_programs and not Offers.has_room(turn, job) then
        call('ZADD', PREFIX .. 'cramped', 'NX', decimal(turn.now_ms), id)
      end
      Queues.leave_to_others(job)
    else
      if not State.broken[id] then Repairs.report(index) end
      Queues.step_out(queue, name or Jobs.tenant_of(id), id)
    end
    turn.looks = turn.looks - 1
    Queues.level(queue)
  end
end
