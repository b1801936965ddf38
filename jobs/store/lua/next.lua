-- NEXT worker popped bell lanes ttl slot_ttl queues(json) tokens(json) kinds(json) offer(json) labels replicas
--   -> {hold, id} | {take, id, token, kind, spec, total, est_ms, id, ...} | {none} | {draining}
-- Small jobs are taken up to TAKE_MS of estimated work a lane.
-- kinds: the version of each kind's model that this worker computes; '' for any. What it lacks is left to others.
-- offer: what a runner has free, and the only tenant whose jobs it may take, if any; '' for other workers.
-- labels: of its host, as labels_of reads them. replicas: 1 from a runner that has no slot free, and starts replicas of
-- services alone.
-- popped: the queue whose bell RQ has just taken, or ''; bell: that bell's id. tokens: how many small jobs to take, and their leases' names.
local worker, popped, bell, lanes, ttl, slot_ttl =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local queues, tokens, kinds = cjson.decode(ARGV[7]), nil, ARGV[9] ~= '' and cjson.decode(ARGV[9]) or nil
local t = now()
local programs = string.find(ARGV[7], '"runner.', 1, true)
-- Most often no tenant is registered, no job has aged and none is lacked: one call says so.
local plain = call('EXISTS', P .. 'shares', P .. 'aged', P .. 'lacked') == 0 and not (programs and call('EXISTS', P .. 'unfit') == 1)
if plain then several, none_lacked = false, true end
if bell ~= '' then call('DEL', 'rq:job:' .. bell) end
level_later() -- the job that is taken most often silences the bell of the one that is parked
park(worker, t)

-- A bell that was popped for work which this worker does not take must ring again.
local function answer(reply)
  if reply[1] ~= 'hold' then end_slot(worker) end
  if popped ~= '' then level(popped) end
  level_now()
  return reply
end

if kept.taken and #kept.taken > 1 then return answer(kept.taken) end
local row = redis.pcall('HMGET', P .. 'worker:' .. worker, 'drain', 'device', 'reserved', 'labels')
if row[1] == '1' then return answer({ 'draining' }) end
local labels = labels_of(ARGV[11], row[4])

-- A tenant that requires labels which this worker's host has not.
local function is_barred(name) return by_tenant() and T.bars(name, labels) end

-- A tenant whose jobs this worker may not compute now: it uses all its lanes, or this is a GPU and it has had its seconds.
local function has_no_gpu(name)
  local caps = row[2] == 'gpu' and by_tenant() and T.caps(name)
  return caps and caps.without_gpu(name, t)
end

local capped_count
local function is_out(name)
  if is_capped(name) or is_barred(name) then return true end
  local out = has_no_gpu(name)
  if out then capped_count = nil end -- it may be the first to say so
  return out
end

-- A job that waits for the next day.
local function is_spent(j)
  local caps = by_tenant() and T.caps(j.tenant)
  return caps and caps.spent(j, t)
end

local function hold(j)
  call('ZADD', P .. 'slots', num(t + slot_ttl), worker)
  call('HSET', P .. 'slotjob', worker, j.id .. '|' .. lanes)
  count_holders(j, 1, lanes)
  call('ZREM', P .. 'later', j.id)
  return { 'hold', j.id }
end

-- What only runners need.
local function matching(offer)
local M, known, spare = {}, {}, {}

function M.fits(some)
  if some == '' or not offer then return true end
  if known[some] == nil then known[some] = is_met(offer, some) end
  return known[some]
end

local function is_let_in(name) return not offer or (offer.tenant or '') == '' or offer.tenant == name end

function M.has_room(j) return j.state == 'finishing' or (is_let_in(j.tenant) and M.fits(needs(j))) end

-- A runner that is kept for a job starts others only as far as that does not wait longer for them.
function M.may_start(j)
  if not M.kept then return true end
  if spare[j.id] == nil then spare[j.id] = units_beside(M.kept, j, t) >= 1 end
  return spare[j.id]
end

function M.able(j) return M.has_room(j) and M.may_start(j) end

local function may_come(id)
  local j = M.kept and job(id)
  return not M.kept or (j and M.may_start(j))
end

-- Brings back one job of each requirements that this runner meets: the others would wait in vain.
local function call_one_back(name, queue)
  local place, choosy = P .. 'lacked:' .. name, M.kept or (offer and (offer.tenant or '') ~= '')
  local first = call('ZRANGE', place, 0, choosy and CALLED_BACK - 1 or 0, 'WITHSCORES')
  for i = 1, #first, 2 do
    local owner = tenant_of(first[i])
    if is_let_in(owner) and may_come(first[i]) then
      call('ZREM', place, first[i])
      line_up(queue, owner, first[i], first[i + 1])
      level(queue)
      break
    end
  end
  if call('EXISTS', place) == 0 then call('SREM', P .. 'unfit', name) end
end

-- The job that this runner is kept for, pending, once there is room for it.
function M.claimed()
  local j = M.kept and job(M.kept.id)
  if not j or not PENDABLE[j.state] or j.backlog == 1 or not M.has_room(j) or not leasable(j, t) then return nil end
  if is_out(j.tenant) or is_spent(j) or (kinds and num(kinds[j.kind] or -1) ~= j.version) then return nil end
  local place = P .. 'lacked:' .. lacked(j)
  local turn = call('ZSCORE', place, j.id)
  if turn then
    call('ZREM', place, j.id)
    line_up(j.queue, j.tenant, j.id, turn)
    level(j.queue)
  end
  return j
end

-- The waiting replica that this runner starts next, by priority, then by age; of very many it looks at some. Jobs that
-- need a slot stay where they wait.
local REPLICAS_TRIED = 100
function M.replica()
  local best
  for _, id in ipairs(call('SRANDMEMBER', P .. 'waiting_replicas', REPLICAS_TRIED)) do
    local j = job(id)
    if not j or not PENDABLE[j.state] or j.backlog == 1 or not leasable(j, t) then
      call('SREM', P .. 'waiting_replicas', id)
    elseif not M.has_room(j) then
      call('ZADD', P .. 'cramped', 'NX', num(t), id)
    elseif num(kinds[j.kind] or -1) == j.version and M.may_start(j) and not is_out(j.tenant) and not is_spent(j) then
      local order = { CLASSES[class_of(j.queue)] or 5, j.seq }
      if not best or order[1] < best.order[1] or (order[1] == best.order[1] and order[2] < best.order[2]) then
        best = { job = j, order = order }
      end
    end
  end
  if best then call('ZREM', P .. 'lacked:' .. lacked(best.job), best.job.id) end
  return best and best.job
end

function M.call_back()
  for _, name in ipairs(call('SMEMBERS', P .. 'unfit')) do
    local queue, kind, version, some = string.match(name, '^(.-):([^|]*)|([^|]*)|?(.*)$')
    if queue and (not kinds or (kinds[kind] and num(kinds[kind]) == version)) and M.fits(some) then call_one_back(name, queue) end
  end
end

return M
end

local M = programs and matching((ARGV[10] or '') ~= '' and cjson.decode(ARGV[10]))
if M and row[3] then
  local r = reservation(row[3], t)
  M.kept = r and r.counts and r.runner == worker and r
end
local function able(j)
  return (not kinds or (kinds[j.kind] and num(kinds[j.kind]) == j.version)) and (not M or M.able(j))
end

local looks = 100
-- The job of the earliest turn in a queue, or of one tenant in it, that this worker computes.
local function first(queue, name)
  local index = name and P .. 'turns:' .. queue .. ':' .. name or P .. 'pending:' .. queue
  while looks > 0 do
    local head = call('ZRANGE', index, 0, 0, 'WITHSCORES')
    local id = head[1]
    if not id then return nil end
    local j = job(id)
    local fit = j and PENDABLE[j.state] and (not name or (j.tenant == name and call('ZSCORE', P .. 'pending:' .. queue, id)))
    local spent = fit and is_spent(j)
    if fit and able(j) and not spent then return j, tonumber(head[2]) end
    if spent then
      T.caps(j.tenant).defer(j, head[2])
    elseif fit then
      if M and not M.has_room(j) then call('ZADD', P .. 'cramped', 'NX', num(t), id) end
      leave_to_others(j)
    else -- it has no place here; if it has one in another tenant's part, it goes there
      local owner = name or tenant_of(id)
      local turn = name and j and j.tenant ~= name and PENDABLE[j.state] and call('ZSCORE', P .. 'pending:' .. queue, id)
      step_out(queue, owner, id)
      if turn then line_up(queue, j.tenant, id, turn) end
    end
    looks = looks - 1
    level(queue)
  end
end

local function small(j) return j and j.small == 1 and j.state == 'queued' and j.cursor == 0 end

-- The lanes of a worker compute what it takes one after the other: its small jobs occupy no more lanes than it has, and
-- where the tenant may use fewer, there are only as many jobs.
local function take(queue, j)
  local taken, count, budget, billed = { 'take' }, 0, TAKE_MS * lanes, 0
  local payer, name = j, by_tenant() and j.tenant or nil
  local room = name and T.room(name, t) or math.huge
  local most = room < tonumber(lanes) and math.min(math.max(room, 1), #tokens) or #tokens
  kept.taken = taken
  while small(j) and count < most and (budget > 0 or count == 0) and not (count > 0 and has_no_gpu(name)) do
    count = count + 1
    step_out(queue, j.tenant, j.id)
    billed = billed + grant(j, tokens[count], 0, j.total, 0, 0, ttl, worker, t, j.est_ms, count <= tonumber(lanes))
    local caps = name and T.caps(name)
    if caps then caps.foresee(j, j.total, t) end
    j.cursor = j.total
    set(j, 'cursor', num(j.total))
    start(j, t)
    budget = budget - j.est_ms
    set_later(j, t + ttl)
    for _, item in ipairs({ j.id, tokens[count], j.kind, call('HGET', key(j.id), 'spec'), num(j.total), num(j.est_ms) }) do
      taken[#taken + 1] = item
    end
    j = first(queue, name)
  end
  if by_tenant() then T.bill(payer, billed) end
  level(queue)
  return taken
end

local function give(j, queue)
  tokens = small(j) and cjson.decode(ARGV[8]) or {}
  if #tokens > 0 then return take(queue, j) end
  level(queue, -step_out(queue, j.tenant, j.id))
  return hold(j)
end

local rank = {}
for at, queue in ipairs(queues) do
  local priority = class_of(queue)
  rank[queue] = rank[priority] or at
  rank[priority] = rank[queue]
end

local function finish_of(j) return by_tenant() and number_at('HGET', P .. 'finish:' .. class_of(j.queue), j.tenant) or 0 end

-- Whether this worker had better help job a than job b: by priority, then by what their tenants were given, then by holders.
local function before(a, b)
  if not b or rank[a.queue] ~= rank[b.queue] then return not b or rank[a.queue] < rank[b.queue] end
  local mine, other = finish_of(a), a.tenant == b.tenant and 0 or finish_of(b)
  if a.tenant ~= b.tenant and mine ~= other then return mine < other end
  return a.holders < b.holders
end

-- Tenants that have held jobs in a queue, those first who were given least, and what they were given.
local function holding(queue)
  local names, given = call('SMEMBERS', P .. 'holding:' .. queue), {}
  if names[1] and by_tenant() then
    local finish = call('HMGET', P .. 'finish:' .. class_of(queue), unpack(names))
    for i, name in ipairs(names) do given[name] = tonumber(finish[i] or 0) or 0 end
    table.sort(names, function(a, b) return given[a] < given[b] end)
  end
  return names, given
end

-- The job with the fewest holders of a tenant's held ones in a queue that this worker may help; HELD_AT_ONCE are read at a time.
local HELD_AT_ONCE = 16
local function least_held(queue, name)
  local place, from = P .. 'held:' .. queue .. ':' .. name, 0
  while true do
    local ids = call('ZRANGE', place, num(from), num(from + HELD_AT_ONCE - 1))
    for _, id in ipairs(ids) do
      local j = job(id)
      if not j or j.holders <= 0 or j.queue ~= queue or j.tenant ~= name then
        call('ZREM', place, id) -- a worker of an earlier version let it go
        from = from - 1
      elseif j.state == 'running' and able(j) and leasable(j, t) and not is_spent(j) then
        return j
      end
    end
    if #ids == 0 and from == 0 then call('SREM', P .. 'holding:' .. queue, name) end
    if #ids < HELD_AT_ONCE then return nil end
    from = from + HELD_AT_ONCE
  end
end

-- Whether somebody has held a job of a rank before `above`: one call, where most often nobody has.
local function any_held(above)
  local places = {}
  for _, queue in ipairs(queues) do
    if rank[queue] < above then places[#places + 1] = P .. 'holding:' .. queue end
  end
  return places[1] and call('EXISTS', unpack(places)) > 0
end

-- The running job that this worker may best help, of a rank before `above`, of tenants that were given less than `most`.
local function helpable(above, most)
  if not any_held(above) then return nil end
  local best
  for _, queue in ipairs(queues) do
    local place = rank[queue]
    if place < above and (not best or place <= rank[best.queue]) then
      local names, given = holding(queue)
      for _, name in ipairs(names) do
        local had = given[name] or 0
        if had >= (most or math.huge) or (best and place == rank[best.queue] and had > finish_of(best)) then break end
        local j = not is_out(name) and least_held(queue, name)
        if j and before(j, best) then best = j end
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
      local j, turn = first(queue)
      if j and (not best or turn < place) then best, place, where = j, turn, queue end
    end
  end
  return best, where
end

-- What only several tenants or aged jobs need; made when it is needed, since each call makes all functions anew.
local function ordering()
local F = {}

-- A job whose result alone is missing: that needs no GPU seconds, where its tenant has none left.
local function finishing(queue, name)
  for _, id in ipairs(call('ZRANGE', P .. 'in:finishing', 0, 31)) do
    local turn = call('ZSCORE', P .. 'turns:' .. queue .. ':' .. name, id)
    local j = turn and job(id)
    if j and j.state == 'finishing' and able(j) then return j, tonumber(turn) end
  end
end

-- Heads of tenants in a queue, those first who were given least: calls look(job, turn, virtual time) until it is true.
local function each_head(queue, look)
  if is_program({ queue = queue }) then T.refresh(queue) end
  if not capped_count then
    capped_count = call('SCARD', P .. 'capped')
    for _ in pairs(T.wanted()) do capped_count = capped_count + 1 end
  end
  local most = TENANTS_TRIED + capped_count -- else those that cannot be served would hide the others
  local heads = call('ZRANGE', P .. 'order:' .. queue, 0, most - 1, 'WITHSCORES')
  for i = 1, #heads, 2 do
    local j, turn
    if not is_out(heads[i]) then
      j, turn = first(queue, heads[i])
    elseif not is_barred(heads[i]) and not is_capped(heads[i]) then
      j, turn = finishing(queue, heads[i])
    end
    if j and look(j, turn, tonumber(heads[i + 1])) then return end
  end
end

-- The pending job of this rank whose tenant was given least; among equals, the one that has waited longest.
function F.fairest(at)
  local best, place, given, where
  for _, queue in ipairs(queues) do
    if rank[queue] == at then
      each_head(queue, function(j, turn, finish)
        if not best or finish < given or (finish == given and turn < place) then
          best, place, given, where = j, turn, finish, queue
        end
        return true
      end)
    end
  end
  return best, where, given
end

-- Tenants that could not be served meanwhile have no credit when they can.
function F.advance(class, given)
  if given > number_at('GET', P .. 'virtual:' .. class) then call('SET', P .. 'virtual:' .. class, string.format('%.17g', given)) end
  for _, member in ipairs(call('SMEMBERS', P .. 'capped')) do
    local device, name = string.match(member, '^(gpu):(.*)$')
    name = name or member
    local behind = given - number_at('HGET', P .. 'finish:' .. class, name)
    if behind > 0 and (not device or row[2] == device) then
      T.bill({ queue = 'any.' .. class, tenant = name }, behind * T.share_of(name).weight)
    end
  end
end

-- The head that has waited longest of those that are aged, and its queue; of every priority.
local function aged(since)
  local best, place, where
  for _, queue in ipairs(queues) do
    local function look(j, turn)
      local old = since[queue] and math.max(j.created, j.since) <= since[queue]
      if old and (not best or turn < place) then best, place, where = j, turn, queue end
    end
    if since[queue] and by_tenant() then
      each_head(queue, look)
    elseif since[queue] then
      local j, turn = first(queue)
      if j then look(j, turn) end
    end
  end
  return best, where
end

-- One turn in AGED_TURN of each worker is that of an aged job, if there is one that it may take.
function F.aged_turn()
  local since, some = {}, false
  for at, value in ipairs(call('HMGET', P .. 'aged', unpack(queues))) do
    since[queues[at]] = tonumber(value or nil)
    some = some or since[queues[at]] ~= nil
  end
  if some and call('HINCRBY', P .. 'aging', worker, 1) % AGED_TURN == 1 then return aged(since) end
end

return F
end

-- Without a bell, most often nothing waits: one call says so of all queues.
local function some_wait()
  if popped ~= '' then return true end
  local indexes = {}
  for at, queue in ipairs(queues) do indexes[at] = P .. 'pending:' .. queue end
  return call('EXISTS', unpack(indexes)) > 0
end

-- Whether nothing waits or is held in the first half of the queues, as is most often so: one call for all of them.
local middle = rank[queues[math.ceil((#queues + 1) / 2)]] or 1
local function quiet_above()
  local places = {}
  for _, queue in ipairs(queues) do
    if rank[queue] < middle then
      places[#places + 1] = P .. 'pending:' .. queue
      places[#places + 1] = P .. 'holding:' .. queue
    end
  end
  return not places[1] or call('EXISTS', unpack(places)) == 0
end

if M and kinds and ARGV[12] == '1' then
  local replica = M.replica()
  return answer(replica and give(replica, replica.queue) or { 'none' })
end
call_back(kinds)
if M and not plain then M.call_back() end
local claimed = M and M.claimed()
if claimed and M.kept.all then return answer(give(claimed, claimed.queue)) end
local F = not plain and (by_tenant() or call('EXISTS', P .. 'aged') == 1) and ordering() or nil
if F then
  local due, place = F.aged_turn()
  if due then return answer(give(due, place)) end
end
local waits = some_wait()
local from = waits and quiet_above() and middle or 1
for at = from, waits and #queues or 0 do
  if claimed and rank[claimed.queue] == at then
    local above = at > from and helpable(at)
    return answer(above and hold(above) or give(claimed, claimed.queue))
  end
  local j, queue, given
  if by_tenant() then j, queue, given = F.fairest(at) else j, queue = oldest(at) end
  if j then
    local above = at > from and helpable(at)
    if above then return answer(hold(above)) end
    if by_tenant() then
      local other = helpable(at + 1, given)
      if other then return answer(hold(other)) end
      F.advance(class_of(queue), given)
    end
    return answer(give(j, queue))
  end
end

local best = claimed or helpable(math.huge)
if best then return answer(hold(best)) end
return answer({ 'none' })
