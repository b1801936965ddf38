-- Read after the prelude. What only a job needs that others wait for or hear of: docs/lease-protocol.md, Ties. The field
-- `ties` of a job has a letter for each: c, children wait for it, or were skipped because of it; p, it waited for
-- parents; w, it belongs to a workflow; n, a webhook is told of its end.
local K, telling = {}, false
-- What one call does at most: children that it tells, and parents that it reads for them.
local TOLD_AT_ONCE = 64
K.STEPS_AT_ONCE = 2000

local function has(j, letter) return string.find(j.ties, letter, 1, true) ~= nil end

local function tie(id, letter)
  local known = redis.pcall('HGET', key(id), 'ties')
  if type(known) == 'table' or (known and string.find(known, letter, 1, true)) then return end
  call('HSET', key(id), 'ties', (known or '') .. letter)
end

-- The state of another job; nil for one that is gone, or broken.
local function state_of(id)
  local state = redis.pcall('HGET', key(id), 'state')
  return type(state) == 'string' and STATES[state] and state or nil
end

-- Whoever needs this job to be done waits in vain, until RETRY.
local function is_bad(state) return not state or state == 'failed' or state == 'cancelled' end

-- What a parent means for a child that needs it to be done (ok), or to have ended (any): met, waits, or skip and the job
-- because of which; and the parent's tenant, nil for a parent that is gone.
local function verdict(parent, need)
  local row = redis.pcall('HMGET', key(parent), 'state', 'root', 'tenant')
  local state = not row.err and STATES[row[1]] and row[1] or nil
  local owner = state and (row[3] or 'default')
  if state and not TERMINAL[state] and call('SISMEMBER', P .. 'broken', parent) == 1 then state = 'failed' end
  if state == 'done' or (need == 'any' and (not state or TERMINAL[state])) then return 'met', nil, owner end
  if is_bad(state) then return 'skip', parent, owner end
  if state == 'skipped' and row[2] and is_bad(state_of(row[2])) then return 'skip', row[2], owner end
  return 'waits', nil, owner
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
  redis.pcall('ZADD', key(parent, 'children'), score, child)
  tie(parent, 'c')
  if state_of(parent) == 'skipped' then note_waking(parent) end -- it may be about to come back, or not after all
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
    local what, because = verdict(needs[i], needs[i + 1])
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
  local state = state_of(root)
  if not state then return 'job ' .. root .. ', after which it comes, is gone' end
  return 'job ' .. root .. ', after which it comes, ' .. (state == 'cancelled' and 'was cancelled' or 'failed')
end

-- job:{root}:skips: jobs that were skipped because of this one, also through others.
function K.skip(j, root, t)
  local text, before = reason(root), call('HGET', key(j.id), 'root')
  if before then redis.pcall('SREM', key(before, 'skips'), j.id) end
  call('HSET', key(j.id), 'root', root, 'error', text)
  if state_of(root) then
    redis.pcall('SADD', key(root, 'skips'), j.id)
    tie(root, 'c')
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
    if state_of(parent) then list_child(parent, j.id, needs[parent] and 0 or 1) end
  end
  call('HDEL', key(j.id), 'root', 'error', 'ended')
  set_state(j, 'blocked', t)
  return #parents
end

-- Does with a blocked job what its parents are for it. Returns how many were read.
function K.judge(j, t)
  local left, root, count = evaluate(j.id)
  if root then
    K.skip(j, root, t)
  elseif left == 0 then
    release(j, t)
  end
  return count
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

-- Tells a child that its parent has ended. Returns how many parents were read.
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

-- Tells the children of a job that has ended, as many as one call may. Returns how many, the parents read, and whether
-- there are more.
local function tell(parent, state, t)
  local told, steps = 0, 0
  local waiting = redis.pcall('ZRANGEBYSCORE', key(parent, 'children'), 0, 0, 'LIMIT', 0, TOLD_AT_ONCE)
  if waiting.err then waiting = {} end -- SWEEP finds those children
  for _, child in ipairs(waiting) do
    if steps >= K.STEPS_AT_ONCE then break end
    told, steps = told + 1, steps + 1 + tell_child(parent, state, child, t)
  end
  return told, steps, told == TOLD_AT_ONCE or told < #waiting
end

-- Brings back those that were skipped because of a job that is tried again.
local function bring_some_back(root, t)
  local told, steps = 0, 0
  local skipped = redis.pcall('SRANDMEMBER', key(root, 'skips'), TOLD_AT_ONCE)
  if skipped.err then skipped = {} end
  for _, id in ipairs(skipped) do
    if steps >= K.STEPS_AT_ONCE then break end
    local j = job(id)
    call('SREM', key(root, 'skips'), id)
    if j and j.state == 'skipped' and call('HGET', key(id), 'root') == root then steps = steps + K.bring_back(j, t) end
    told, steps = told + 1, steps + 1
  end
  return told, steps, told == TOLD_AT_ONCE or told < #skipped
end

-- Tells a part of those whom the first in ct:waking concerns; then others have their turn.
local function wake_one(t)
  local id = call('ZRANGE', P .. 'waking', 0, 0)[1]
  if not id then return nil end
  local state = state_of(id)
  local told, steps, more = 0, 1, false
  if not is_bad(state) then told, steps, more = bring_some_back(id, t) end
  if not more and (not state or TERMINAL[state]) then
    local some, read, rest_of_them = tell(id, state, t)
    told, steps, more = told + some, steps + read, rest_of_them
  end
  if more then note_waking(id) else call('ZREM', P .. 'waking', id) end
  return told, steps + 1
end

function K.wake(t)
  local told, steps = 0, 0
  telling = true
  while told < TOLD_AT_ONCE and steps < K.STEPS_AT_ONCE do
    local some, read = wake_one(t)
    if not some then return told, steps, false end
    told, steps = told + some, steps + read
  end
  return told, steps, true
end

-- A job has ended: its children hear of it, at once those that it makes ready. The leader tells the others, and those that
-- it finds itself where Redis refuses a worker with the rights of an earlier version what is kept of ties.
local function call_children(j, t)
  if type(note_waking(j.id)) == 'table' or j.state ~= 'done' or telling then return end
  local blamed = in_hand
  telling = true
  local sound, _, _, more = pcall(tell, j.id, j.state, t)
  telling, in_hand, refused = false, blamed, false
  local all = sound and not more and call('EXISTS', key(j.id, 'skips')) == 0 -- some may not be back yet
  if all then call('ZREM', P .. 'waking', j.id) end
end

-- The leader looks at workflows that are due.
local function note_workflow(j)
  local workflow = call('HGET', key(j.id), 'workflow')
  if workflow then redis.pcall('SADD', P .. 'workflowsdue', workflow) end
end

-- Deliveries of webhooks. A place is tenant|origin of their URLs: ct:outbox:{place} has when each is due, ct:deliveries when
-- the first of each place is. ct:deliveries:{tenant}:{state}: those that are listed, by when they came there.
K.MAX_PENDING, K.LISTED, K.KEPT_MS = 100000, 1000, { delivered = 86400000, dead = 604800000 }

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
local function add_delivery(id, tenant, url, t, ...)
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
  add_delivery(id, j.tenant, known[1], t, 'type', 'job.' .. j.state, 'job', j.id, 'kind', j.kind,
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
  for _, parent in ipairs(parents) do
    local what, because, whose = verdict(parent, needs[parent])
    if whose ~= owner then return nil, { needs[parent] == 'ok' and 'after' or 'after_any', parent } end
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
  for _, parent in ipairs(plan.parents) do list_child(parent, j.id, plan.met[parent] and 1 or 0) end
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
