-- NEXT worker popped bell lanes ttl slot_ttl queues(json) tokens(json) kinds(json)
--   -> {hold, id} | {take, id, token, kind, spec, total, est_ms, id, ...} | {none} | {draining}
-- Small jobs are taken up to TAKE_MS of estimated work a lane.
-- kinds: the version of each kind's model that this worker computes; '' for any. What it lacks is left to others.
-- popped: the queue whose bell RQ has just taken, or ''; bell: that bell's id. tokens: how many small jobs to take, and their leases' names.
local worker, popped, bell, lanes, ttl, slot_ttl =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local queues, tokens, kinds = cjson.decode(ARGV[7]), cjson.decode(ARGV[8]), ARGV[9] ~= '' and cjson.decode(ARGV[9]) or nil
local t = now()
if bell ~= '' then call('DEL', 'rq:job:' .. bell) end
park(worker, t)

-- A bell that was popped for work which this worker does not take must ring again.
local function answer(reply)
  if popped ~= '' then level(popped) end
  return reply
end

if kept.taken and #kept.taken > 1 then return answer(kept.taken) end
if redis.pcall('HGET', P .. 'worker:' .. worker, 'drain') == '1' then return answer({ 'draining' }) end

local function hold(j)
  call('ZADD', P .. 'slots', num(t + slot_ttl), worker)
  call('HSET', P .. 'slotjob', worker, j.id .. '|' .. lanes)
  call('HINCRBY', key(j.id), 'holders', 1)
  call('HINCRBY', key(j.id), 'lanes', lanes)
  call('ZREM', P .. 'later', j.id)
  return { 'hold', j.id }
end

local function able(j) return not kinds or (kinds[j.kind] and num(kinds[j.kind]) == j.version) end

local looks = 100
local function first(queue)
  while looks > 0 do
    local head = call('ZRANGE', P .. 'pending:' .. queue, 0, 0, 'WITHSCORES')
    local id = head[1]
    if not id then return nil end
    local j = job(id)
    local fit = j and PENDABLE[j.state]
    if fit and able(j) then return j, tonumber(head[2]) end
    if fit then leave_to_others(j) else call('ZREM', P .. 'pending:' .. queue, id) end
    looks = looks - 1
    level(queue)
  end
end

local function small(j) return j and j.small == 1 and j.state == 'queued' and j.cursor == 0 end

local function take(queue, j)
  local taken, count, budget = { 'take' }, 0, TAKE_MS * lanes
  kept.taken = taken
  while small(j) and count < #tokens and (budget > 0 or count == 0) do
    count = count + 1
    call('ZREM', P .. 'pending:' .. queue, j.id)
    grant(j, tokens[count], 0, j.total, 0, 0, ttl, worker, t)
    j.cursor = j.total
    call('HSET', key(j.id), 'cursor', num(j.total))
    start(j, t)
    budget = budget - j.est_ms
    set_later(j, t + ttl)
    for _, item in ipairs({ j.id, tokens[count], j.kind, call('HGET', key(j.id), 'spec'), num(j.total), num(j.est_ms) }) do
      taken[#taken + 1] = item
    end
    j = first(queue)
  end
  level(queue)
  return taken
end

-- The running job that this worker may best help: of the best priority, then with the fewest holders.
local rank = {}
for at, queue in ipairs(queues) do
  local priority = string.match(queue, '%.(.*)$')
  rank[queue] = rank[priority] or at
  rank[priority] = rank[queue]
end

local function helpable(above)
  local seen, best = {}, nil
  for _, text in ipairs(call('HVALS', P .. 'slotjob')) do
    local id = string.match(text, '^(.*)|%d+$')
    if id and not seen[id] then
      seen[id] = true
      local where = redis.pcall('HGET', key(id), 'queue')
      local place = type(where) == 'string' and rank[where]
      if place and place < above and (not best or place <= rank[best.queue]) then
        local j = job(id)
        local fits = j and j.state == 'running' and able(j) and leasable(j, t)
        if fits and (not best or place < rank[best.queue] or j.holders < best.holders) then best = j end
      end
    end
  end
  return best
end

-- The pending job of the priority at this rank that has waited longest, and its queue. The worker's own device does not
-- come first: jobs of a saturated device, which come back after each turn, would keep those of `any` waiting for ever.
local function oldest(at)
  local best, place, where
  for _, queue in ipairs(queues) do
    if rank[queue] == at then
      local j, score = first(queue)
      if j and (not best or score < place) then best, place, where = j, score, queue end
    end
  end
  return best, where
end

call_back(kinds)
for at in ipairs(queues) do
  local j, queue = oldest(at)
  if j then
    local above = at > 1 and helpable(at)
    if above then return answer(hold(above)) end
    if small(j) and #tokens > 0 then return answer(take(queue, j)) end
    call('ZREM', P .. 'pending:' .. queue, j.id)
    level(queue)
    return answer(hold(j))
  end
end

local best = helpable(math.huge)
if best then return answer(hold(best)) end
return answer({ 'none' })
