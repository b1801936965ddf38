-- NEXT worker popped bell lanes ttl slot_ttl queues(json) tokens(json)
--   -> {hold, id} | {take, id, token, kind, spec, total, est_ms, id, ...} | {none} | {draining}
-- Small jobs are taken up to TAKE_MS of estimated work a lane.
-- popped: the queue whose bell RQ has just taken, or ''; bell: that bell's id. tokens: how many small jobs to take, and their leases' names.
local worker, popped, bell, lanes, ttl, slot_ttl =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local queues, tokens = cjson.decode(ARGV[7]), cjson.decode(ARGV[8])
local t = now()
if bell ~= '' then call('DEL', 'rq:job:' .. bell) end
park(worker, t)

-- A bell that was popped for work which this worker does not take must ring again.
local function answer(reply)
  if popped ~= '' then level(popped) end
  return reply
end

if redis.pcall('HGET', P .. 'worker:' .. worker, 'drain') == '1' then return answer({ 'draining' }) end

local function hold(j)
  call('ZADD', P .. 'slots', num(t + slot_ttl), worker)
  call('HSET', P .. 'slotjob', worker, j.id .. '|' .. lanes)
  call('HINCRBY', key(j.id), 'holders', 1)
  call('HINCRBY', key(j.id), 'lanes', lanes)
  call('ZREM', P .. 'later', j.id)
  return { 'hold', j.id }
end

local function first(queue)
  while true do
    local id = call('ZRANGE', P .. 'pending:' .. queue, 0, 0)[1]
    if not id then return nil end
    local j = job(id)
    if j and PENDABLE[j.state] then return j end
    call('ZREM', P .. 'pending:' .. queue, id)
    level(queue)
  end
end

local function small(j) return j and j.small == 1 and j.state == 'queued' and j.cursor == 0 end

local function take(queue, j)
  local taken, count, budget = { 'take' }, 0, TAKE_MS * lanes
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

for _, queue in ipairs(queues) do
  local j = first(queue)
  if small(j) and #tokens > 0 then return answer(take(queue, j)) end
  if j then
    call('ZREM', P .. 'pending:' .. queue, j.id)
    level(queue)
    return answer(hold(j))
  end
end

local mine, seen, best = {}, {}, nil
for _, queue in ipairs(queues) do mine[queue] = true end
for _, text in ipairs(call('HVALS', P .. 'slotjob')) do
  local id = string.match(text, '^(.*)|%d+$')
  if id and not seen[id] then
    seen[id] = true
    local j = job(id)
    if j and j.state == 'running' and mine[j.queue] and leasable(j, t) and (not best or j.holders < best.holders) then
      best = j
    end
  end
end
if best then return answer(hold(best)) end
return answer({ 'none' })
