-- Read after the prelude. What only a job needs that others wait for or hear of: docs/lease-protocol.md, Ties. The field
-- `ties` of a job has a letter for each: c, children wait for it, or were skipped because of it; p, it waited for
-- parents; w, it belongs to a workflow; n, a webhook is told of its end.
local K, telling = {}, false
-- What one call does at most: children that it tells, and parents that it reads for them.
local TOLD_AT_ONCE = 64
local STEPS_AT_ONCE = 600

local function has(j, letter) return string.find(j.ties, letter, 1, true) ~= nil end

-- The state of another job; nil for one that is gone, or broken.
local function state_of(id)
  local state = redis.pcall('HGET', key(id), 'state')
  return type(state) == 'string' and STATES[state] and state or nil
end

-- Whoever needs this job to be done waits in vain, until RETRY.
local function is_bad(state) return not state or state == 'failed' or state == 'cancelled' end

-- What of another job concerns those before and after it. state: nil for one that is gone, or broken.
local function look_at(id)
  local row = redis.pcall('HMGET', key(id), 'state', 'root', 'tenant', 'ties')
  local state = not row.err and STATES[row[1]] and row[1] or nil
  if not state then return { id = id } end
  return { id = id, state = state, root = row[2], tenant = row[3] or 'default', ties = row[4] or '' }
end

-- Jobs that a script or a coordinator found broken, as a rule none, and of which it is not stored that they failed.
local function is_broken(seen)
  if kept.broken == nil then kept.broken = call('EXISTS', P .. 'broken') == 1 end
  return kept.broken and not TERMINAL[seen.state] and call('SISMEMBER', P .. 'broken', seen.id) == 1
end

-- What a parent means for a child that needs it to be done (ok), or to have ended (any): met, waits, or skip and the job
-- because of which.
local function verdict(seen, need)
  local state = seen.state
  if state and is_broken(seen) then state = 'failed' end
  if state == 'done' or (need == 'any' and (not state or TERMINAL[state])) then return 'met' end
  if is_bad(state) then return 'skip', seen.id end
  if state == 'skipped' and seen.root and is_bad(state_of(seen.root)) then return 'skip', seen.root end
  return 'waits'
end

-- The parents of a job in the order in which they were named, and what it needs of each.
local function parents_of(id, lists)
  local parents, needs = {}, {}
  for i, need in ipairs({ 'ok', 'any' }) do
    local sound, named = pcall(cjson.decode, lists[i] or '[]')
    if not sound or type(named) ~= 'table' then error({ broken = id, why = 'after is no list' }) end
    for _, parent in ipairs(named) do
      if not needs[parent] then parents[#parents + 1], needs[parent] = parent, need end
    end
  end
  return parents, needs
end

local function stored_parents(id) return parents_of(id, call('HMGET', key(id), 'after', 'after_any')) end

-- ct:waking: jobs that have ended or are tried again, of which not all children know; by turns.
local function note_waking(id)
  return redis.pcall('ZADD', P .. 'waking', call('INCR', P .. 'seq'), id)
end

-- job:{parent}:children: blocked jobs, 0 while they wait for this parent, 1 while only for others. Who is there keeps the
-- parent from being purged. What is broken of a parent stops no child.
local function list_child(parent, child, score)
  redis.pcall('ZADD', key(parent.id, 'children'), score, child)
  if not string.find(parent.ties, 'c', 1, true) then call('HSET', key(parent.id), 'ties', parent.ties .. 'c') end
  if parent.state == 'skipped' then note_waking(parent.id) end -- it may be about to come back, or not after all
end

local function unlist(id)
  local parents = stored_parents(id)
  for _, parent in ipairs(parents) do redis.pcall('ZREM', key(parent, 'children'), id) end
  return #parents
end

-- ct:blocked:{tenant}: blocked jobs of a tenant.
function K.count_blocked(j)
  if not by_tenant() then return end
  if j.state == 'blocked' then
    call('ZADD', P .. 'blocked:' .. j.tenant, num(j.seq), j.id)
  else
    call('ZREM', P .. 'blocked:' .. j.tenant, j.id)
  end
end

-- Takes notes of parents that have ended well. job:{id}:needs: the others, and what of each is needed.
local function meet(id, parents)
  if #parents == 0 then return end
  call('HDEL', key(id, 'needs'), unpack(parents))
  for _, parent in ipairs(parents) do redis.pcall('ZADD', key(parent, 'children'), 'XX', 1, id) end
end

-- Compares what a job needs with what its parents are. Returns how many it waits for, the job because of which it cannot
-- run, or nil, and how many were read.
local function evaluate(id)
  local needs, met, root = call('HGETALL', key(id, 'needs')), {}, nil
  for i = 1, #needs, 2 do
    local what, because = verdict(look_at(needs[i]), needs[i + 1])
    if what == 'met' then met[#met + 1] = needs[i] end
    root = root or because
  end
  meet(id, met)
  return #needs / 2 - #met, root, #needs / 2
end

local function release(j, t)
  local count = unlist(j.id)
  set(j, 'since', num(t))
  if by_tenant() and T.refusal(j.tenant) then T.put_in_backlog(j) end
  set_state(j, 'queued', t)
  rest(j, t)
  return count
end

local function reason(root)
  local why = not root.state and 'is gone' or root.state == 'cancelled' and 'was cancelled' or 'failed'
  return 'job ' .. root.id .. ', after which it comes, ' .. why
end

-- job:{root}:skips: jobs that were skipped because of this one, also through others.
function K.skip(j, root, t)
  local seen, before = look_at(root), call('HGET', key(j.id), 'root')
  local text = reason(seen)
  if before then redis.pcall('SREM', key(before, 'skips'), j.id) end
  call('HSET', key(j.id), 'root', root, 'error', text)
  if seen.state then
    redis.pcall('SADD', key(root, 'skips'), j.id)
    if not string.find(seen.ties, 'c', 1, true) then call('HSET', key(root), 'ties', seen.ties .. 'c') end
  end
  if j.state ~= 'skipped' then
    set_state(j, 'skipped', t, 'error', text)
  elseif has(j, 'c') then
    note_waking(j.id)
  end
end

-- Lets a job that was skipped or cancelled wait for its parents again.
function K.block(j, t)
  local needs, parents = {}, stored_parents(j.id)
  local stored = call('HGETALL', key(j.id, 'needs'))
  for i = 1, #stored, 2 do needs[stored[i]] = true end
  for _, parent in ipairs(parents) do
    local seen = look_at(parent)
    if seen.state then list_child(seen, j.id, needs[parent] and 0 or 1) end
  end
  call('HDEL', key(j.id), 'root', 'error', 'ended')
  set_state(j, 'blocked', t)
  return #parents
end

-- Does with a blocked job what its parents are for it. Returns how many were read or written.
function K.judge(j, t)
  local left, root, count = evaluate(j.id)
  if root then
    K.skip(j, root, t)
    return count + #stored_parents(j.id)
  end
  return left == 0 and count + release(j, t) or count
end

-- Takes a skipped job back: the job because of which it was is tried again.
function K.bring_back(j, t)
  local left, root, count = evaluate(j.id)
  if root then
    K.skip(j, root, t)
    return count
  end
  local before = call('HGET', key(j.id), 'root')
  if before then redis.pcall('SREM', key(before, 'skips'), j.id) end
  if left > 0 then return count + K.block(j, t) end
  call('HDEL', key(j.id), 'root', 'error', 'ended')
  return count + release(j, t)
end

-- What RETRY of a job does that has parents: {answer}, or nil where it goes on as with any other.
function K.retried(j, t)
  if j.state == 'skipped' then
    local root = call('HGET', key(j.id), 'root') or ''
    if is_bad(state_of(root)) then return { 'skipped', root, state_of(root) or 'gone' } end
    K.bring_back(j, t)
    if j.state ~= 'skipped' then return { 'ok', j.state } end
    root = call('HGET', key(j.id), 'root')
    return { 'skipped', root, state_of(root) or 'gone' }
  end
  local left, root = evaluate(j.id)
  if root then return { 'skipped', root, state_of(root) or 'gone' } end
  if left == 0 then return nil end
  K.block(j, t)
  return { 'ok', j.state }
end

-- What this script has done of its part: jobs told, and parents read or written for them. Several calls share it.
local told, steps = 0, 0
function K.is_full() return told >= TOLD_AT_ONCE or steps >= STEPS_AT_ONCE end
function K.spend(count) steps = steps + count end

-- Tells a child that its parent has ended. Returns how many parents were read or written.
local function tell_child(parent, state, child, t)
  local c = job(child)
  if not c or c.state ~= 'blocked' then
    redis.pcall('ZREM', key(parent, 'children'), child)
    return 1
  end
  local need = call('HGET', key(child, 'needs'), parent)
  if need and need ~= 'any' and state ~= 'done' then return K.judge(c, t) end
  call('HDEL', key(child, 'needs'), parent)
  if call('HLEN', key(child, 'needs')) == 0 then return release(c, t) end
  redis.pcall('ZADD', key(parent, 'children'), 'XX', 1, child)
  return 1
end

-- Takes back a job that was skipped because of one that is tried again. Returns as tell_child.
local function recall(root, id, t)
  local j = job(id)
  call('SREM', key(root, 'skips'), id)
  local skipped = j and j.state == 'skipped' and call('HGET', key(id), 'root') == root
  return skipped and K.bring_back(j, t) or 1
end

-- Does `act` with as many of these jobs as there is room for. Returns true when it was all: a list that is as long as what
-- was asked for may have more behind it.
local function do_some(some, asked, act)
  if some.err then return true end -- WAKE's look at blocked jobs finds those children
  for _, id in ipairs(some) do
    if K.is_full() then return false end
    told, steps = told + 1, steps + 1 + act(id)
  end
  return #some < asked
end

-- Tells the children of a job that has ended.
local function tell(parent, state, t)
  local room = math.max(TOLD_AT_ONCE - told, 0) + 1
  local waiting = redis.pcall('ZRANGEBYSCORE', key(parent, 'children'), 0, 0, 'LIMIT', 0, room)
  return do_some(waiting, room, function(child) return tell_child(parent, state, child, t) end)
end

local function bring_some_back(root, t)
  local room = math.max(TOLD_AT_ONCE - told, 0) + 1
  local skipped = redis.pcall('SRANDMEMBER', key(root, 'skips'), room)
  return do_some(skipped, room, function(id) return recall(root, id, t) end)
end

-- Tells those whom the first in ct:waking concerns, then the next, until there is no room. Returns how many, and whether
-- there are more.
function K.wake(t)
  telling = true
  while not K.is_full() do
    local id = call('ZRANGE', P .. 'waking', 0, 0)[1]
    if not id then return told, false end
    local state, all = state_of(id), true
    if not is_bad(state) then all = bring_some_back(id, t) end
    if all and (not state or TERMINAL[state]) then all = tell(id, state, t) end
    if all then call('ZREM', P .. 'waking', id) else note_waking(id) end -- others have their turn
    steps = steps + 2
  end
  return told, true
end

-- A job has ended: its children hear of it, at once those that it makes ready. The leader tells the others, and those that
-- it finds itself where Redis refuses a worker with the rights of an earlier version what is kept of ties.
local function call_children(j, t)
  if type(note_waking(j.id)) == 'table' or j.state ~= 'done' or telling then return end
  local blamed = in_hand
  telling = true
  local sound, all = pcall(tell, j.id, j.state, t)
  telling, in_hand, refused = false, blamed, false
  if not sound or not all or call('EXISTS', key(j.id, 'skips')) == 1 then return end -- some may not be back yet
  call('ZREM', P .. 'waking', j.id)
end

-- The leader looks at workflows that are due.
local function note_workflow(j)
  local workflow = call('HGET', key(j.id), 'workflow')
  if workflow then redis.pcall('SADD', P .. 'workflowsdue', workflow) end
end

-- Deliveries of webhooks. A place is tenant|origin of their URLs: ct:outbox:{place} has when each is due, ct:deliveries when
-- the first of each place is. ct:deliveries:{tenant}:{state}: those that are listed, by when they came there.
-- With MOST_PENDING a tenant may have nothing further that is told; beyond MAX_PENDING what ends is dropped.
K.MOST_PENDING, K.MAX_PENDING, K.LISTED, K.KEPT_MS = 10000, 100000, 1000, { delivered = 86400000, dead = 604800000 }

-- Why nothing further with a webhook is taken of a tenant, as SUBMIT answers it, or nil.
function K.refuses_webhook(tenant)
  if call('ZCARD', P .. 'deliveries:' .. tenant .. ':pending') < K.MOST_PENDING then return nil end
  return { 'over', 'notify', num(K.MOST_PENDING), '60' }
end

function K.note_place(place)
  local first = call('ZRANGE', P .. 'outbox:' .. place, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', P .. 'deliveries', first[2], place)
  else
    call('ZREM', P .. 'deliveries', place)
  end
end

local function place_of(tenant, url) return tenant .. '|' .. (string.match(url, '^%a+://[^/?#]*') or '') end

function K.fall_due(id, tenant, url, at)
  local place = place_of(tenant, url)
  call('ZADD', P .. 'outbox:' .. place, num(at), id)
  K.note_place(place)
end

-- A tenant whose receivers have been away for very long loses what is new; it is counted.
function K.add_delivery(id, tenant, url, t, ...)
  local pending = P .. 'deliveries:' .. tenant .. ':pending'
  if call('ZCARD', pending) >= K.MAX_PENDING then return call('HINCRBY', P .. 'webhooks', 'dropped', 1) end
  call('HSET', P .. 'delivery:' .. id, 'tenant', tenant, 'url', url, 'created', num(t), 'attempts', 0, 'state', 'pending', ...)
  call('ZADD', pending, num(t), id)
  K.fall_due(id, tenant, url, t)
end

-- Ends a delivery that is delivered or dead, and notes what came of it. It is listed for a while.
function K.end_delivery(id, tenant, url, state, t, text)
  local kept, listed, place = K.KEPT_MS[state], P .. 'deliveries:' .. tenant .. ':' .. state, place_of(tenant, url)
  call('ZREM', P .. 'outbox:' .. place, id)
  K.note_place(place)
  call('ZREM', P .. 'deliveries:' .. tenant .. ':pending', id)
  call('HSET', P .. 'delivery:' .. id, 'state', state, 'ended', num(t), 'said', text)
  call('PEXPIRE', P .. 'delivery:' .. id, kept)
  call('ZADD', listed, num(t), id)
  call('PEXPIRE', listed, kept)
  call('ZREMRANGEBYSCORE', listed, '-inf', num(t - kept))
  local old = call('ZPOPMIN', listed, num(math.max(call('ZCARD', listed) - K.LISTED, 0)))
  for i = 1, #old, 2 do call('DEL', P .. 'delivery:' .. old[i]) end
  call('HINCRBY', P .. 'webhooks', state, 1)
end

-- ct:notifying: jobs with a webhook that have not ended, by when the leader looks whether they have: a worker of an
-- earlier version writes no delivery.
K.NOTIFYING_MS = 60000

function K.notify(j, t)
  if not TERMINAL[j.state] then return redis.pcall('ZADD', P .. 'notifying', num(t + K.NOTIFYING_MS), j.id) end
  if redis.pcall('ZREM', P .. 'notifying', j.id) ~= 1 then return end -- told already, or refused to this worker
  local known = call('HMGET', key(j.id), 'notify', 'error')
  if not known[1] then return end
  local ends = num(call('HINCRBY', key(j.id), 'told', 1))
  local id = 'msg_' .. string.sub(redis.sha1hex(table.concat({ j.id, num(j.seq), num(t), ends }, '|')), 1, 27)
  K.add_delivery(id, j.tenant, known[1], t, 'type', 'job.' .. j.state, 'job', j.id, 'kind', j.kind,
    'error', string.sub(known[2] or '', 1, 2000))
end

-- A job with ties has ended, is tried again after its end, or is blocked no longer.
function K.moved(j, before, t)
  local ended_or_back = TERMINAL[j.state] or TERMINAL[before]
  if before == 'blocked' or j.state == 'blocked' then K.count_blocked(j) end
  if before == 'blocked' and TERMINAL[j.state] then unlist(j.id) end
  if ended_or_back and has(j, 'c') then call_children(j, t) end
  if ended_or_back and has(j, 'w') then note_workflow(j) end
  if ended_or_back and has(j, 'n') then K.notify(j, t) end
end

-- Of a new job: parents, each with what it is for it; {after | after_any, id} for one that is not there or another tenant's.
-- waits: how many it waits for; root: because of which it is skipped.
function K.plan(id, owner, given)
  local lists = { given.after, given.after_any }
  local parents, needs = parents_of(id, lists)
  local plan = { parents = parents, needs = {}, met = {}, waits = 0 }
  for i, parent in ipairs(parents) do
    local seen = look_at(parent)
    if seen.tenant ~= owner then return nil, { needs[parent] == 'ok' and 'after' or 'after_any', parent } end
    local what, because = verdict(seen, needs[parent])
    parents[i] = seen
    if what == 'met' then
      plan.met[parent] = true
    else
      plan.waits = plan.waits + 1
      plan.needs[2 * plan.waits - 1], plan.needs[2 * plan.waits] = parent, needs[parent]
    end
    plan.root = plan.root or because
  end
  return plan
end

-- Writes what a new job waits for.
function K.begin(j, plan)
  call('HSET', key(j.id, 'needs'), unpack(plan.needs))
  for _, parent in ipairs(plan.parents) do list_child(parent, j.id, plan.met[parent.id] and 1 or 0) end
  K.count_blocked(j)
end

-- How many blocked jobs keep a job from being purged.
function K.waiting_for(id)
  while true do
    local some = redis.pcall('ZRANGE', key(id, 'children'), 0, 0)
    if some.err or not some[1] then return 0 end
    if state_of(some[1]) == 'blocked' then return call('ZCARD', key(id, 'children')) end
    call('ZREM', key(id, 'children'), some[1])
  end
end

-- Takes a job that is about to be purged out of what is kept of its parents.
function K.forget(id)
  local stored = redis.pcall('HMGET', key(id), 'root', 'tenant', 'state')
  if type(stored[1]) == 'string' then redis.pcall('SREM', key(stored[1], 'skips'), id) end
  if stored[3] ~= 'blocked' then return end -- else it could not be read, and has not ended
  pcall(unlist, id)
  if by_tenant() then call('ZREM', P .. 'blocked:' .. (stored[2] or 'default'), id) end
  call('ZREM', P .. 'in:blocked', id)
end
