-- Turns: what one NEXT knows of the worker that asks, and the jobs that this worker may take.

--- Heads of queues at which one NEXT looks.
local LOOKS = 100

-- Begins the turn of a worker, by the arguments of NEXT.
function Turns.new(args)
  local turn = { worker = args[1], popped = args[2], bell = args[3], lanes = tonumber(args[4]), ttl = tonumber(args[5]),
    slot_ttl = tonumber(args[6]), queues = cjson.decode(args[7]), now_ms = now(), looks = LOOKS, rank = {},
    kinds = args[9] ~= '' and cjson.decode(args[9]) or nil,
    runs_programs = string.find(args[7], '"runner.', 1, true) ~= nil }
  for at, queue in ipairs(turn.queues) do
    local priority = Queues.class_of(queue)
    turn.rank[queue] = turn.rank[priority] or at
    turn.rank[priority] = turn.rank[queue]
  end
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
  return not turn.kinds or (turn.kinds[job.kind] and decimal(turn.kinds[job.kind]) == job.version)
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
