-- Dependencies: jobs that come after others. docs/lease-protocol.md, Ties. The field `ties` of a job has a letter for
-- each: c, children wait for it, or were skipped because of it; p, it waited for parents; w, it belongs to a workflow;
-- n, a webhook is told of its end.

-- What one call does at most: children that it notifies, and parents that it reads for them.
local MAX_NOTIFIED = 64
local MAX_STEPS = 600

local function has_relation(job, letter) return string.find(job.ties, letter, 1, true) ~= nil end

-- Whoever needs this job to be done waits in vain, until RETRY.
local function has_failed(state) return not state or state == 'failed' or state == 'cancelled' end

-- What of another job concerns those before and after it. state: nil for one that is gone, or broken.
local function read_relative(id)
  local row = redis.pcall('HMGET', job_key(id), 'state', 'root', 'tenant', 'ties')
  local state = not row.err and Jobs.STATES[row[1]] and row[1] or nil
  if not state then return { id = id } end
  return { id = id, state = state, root = row[2], tenant = row[3], ties = row[4] or '' }
end

-- Jobs that a function or a coordinator found broken, as a rule none, and of which it is not stored that they failed.
local function is_broken(relative)
  if State.has_broken == nil then State.has_broken = call('EXISTS', PREFIX .. 'broken') == 1 end
  return State.has_broken and not Jobs.TERMINAL[relative.state]
    and call('SISMEMBER', PREFIX .. 'broken', relative.id) == 1
end

-- What a parent means for a child that needs it to be done (ok), or to have ended (any): met, waits, or skip and the
-- job because of which.
local function evaluate_parent(relative, need)
  local state = relative.state
  if state and is_broken(relative) then state = 'failed' end
  if state == 'done' or (need == 'any' and (not state or Jobs.TERMINAL[state])) then return 'met' end
  if has_failed(state) then return 'skip', relative.id end
  local root = state == 'skipped' and relative.root
  if root and has_failed(Jobs.state_of(root)) then return 'skip', root end
  return 'waits'
end

-- The parents of a job in the order in which they were named, and what it needs of each.
local function parse_parents(id, lists)
  local parents, needs = {}, {}
  for i, need in ipairs({ 'ok', 'any' }) do
    local ok, listed = pcall(cjson.decode, lists[i] or '[]')
    if not ok or type(listed) ~= 'table' then error({ broken = id, why = 'after is no list' }) end
    for _, parent in ipairs(listed) do
      if not needs[parent] then parents[#parents + 1], needs[parent] = parent, need end
    end
  end
  return parents, needs
end

local function read_parents(id) return parse_parents(id, call('HMGET', job_key(id), 'after', 'after_any')) end

-- ct:waking: jobs that have ended or are tried again, of which not all children know; by turns.
local function note_waking(id) call('ZADD', PREFIX .. 'waking', call('INCR', PREFIX .. 'seq'), id) end

-- A job is broken that others wait for: they are skipped as if it had failed.
function Dependencies.note_broken(id)
  if redis.pcall('EXISTS', job_key(id, 'children')) == 1 then note_waking(id) end
end

-- job:{parent}:children: blocked jobs, 0 while they wait for this parent, 1 while only for others. Who is there keeps
-- the parent from being purged. What is broken of a parent stops no child.
local function add_child(parent, child, score)
  redis.pcall('ZADD', job_key(parent.id, 'children'), score, child)
  if not string.find(parent.ties, 'c', 1, true) then call('HSET', job_key(parent.id), 'ties', parent.ties .. 'c') end
  if parent.state == 'skipped' then note_waking(parent.id) end -- it may be about to come back, or not after all
end

local function remove_from_parents(id)
  local parents = read_parents(id)
  for _, parent in ipairs(parents) do redis.pcall('ZREM', job_key(parent, 'children'), id) end
  return #parents
end

-- ct:blocked:{tenant}: blocked jobs of a tenant.
function Dependencies.count_blocked(job)
  if not Tenants.are_registered() then return end
  if job.state == 'blocked' then
    call('ZADD', PREFIX .. 'blocked:' .. job.tenant, decimal(job.seq), job.id)
  else
    call('ZREM', PREFIX .. 'blocked:' .. job.tenant, job.id)
  end
end

-- Removes parents that have ended well. job:{id}:needs: the others, and what of each is needed.
local function mark_met(id, parents)
  if #parents == 0 then return end
  call('HDEL', job_key(id, 'needs'), unpack(parents))
  for _, parent in ipairs(parents) do redis.pcall('ZADD', job_key(parent, 'children'), 'XX', 1, id) end
end

-- Compares what a job needs with what its parents are. Returns how many it waits for, the job because of which it
-- cannot run, or nil, and how many were read.
local function evaluate_parents(id)
  local needs, met, root = call('HGETALL', job_key(id, 'needs')), {}, nil
  for i = 1, #needs, 2 do
    local what, because = evaluate_parent(read_relative(needs[i]), needs[i + 1])
    if what == 'met' then met[#met + 1] = needs[i] end
    root = root or because
  end
  mark_met(id, met)
  return #needs / 2 - #met, root, #needs / 2
end

local function unblock(job, now_ms)
  local count = remove_from_parents(job.id)
  Jobs.set(job, 'since', decimal(now_ms))
  if Tenants.are_registered() and Admission.check(job.tenant) then Admission.put_in_backlog(job) end
  Jobs.set_state(job, 'queued', now_ms)
  Queues.reschedule(job, now_ms)
  return count
end

local function describe_skip(root)
  local why = not root.state and 'is gone' or root.state == 'cancelled' and 'was cancelled' or 'failed'
  return 'job ' .. root.id .. ', after which it comes, ' .. why
end

-- job:{root}:skips: jobs that were skipped because of this one, also through others.
function Dependencies.skip(job, root, now_ms)
  local relative, before = read_relative(root), call('HGET', job_key(job.id), 'root')
  local text = describe_skip(relative)
  if before then redis.pcall('SREM', job_key(before, 'skips'), job.id) end
  call('HSET', job_key(job.id), 'root', root, 'error', text)
  if relative.state then
    redis.pcall('SADD', job_key(root, 'skips'), job.id)
    if not string.find(relative.ties, 'c', 1, true) then call('HSET', job_key(root), 'ties', relative.ties .. 'c') end
  end
  if job.state ~= 'skipped' then
    Jobs.set_state(job, 'skipped', now_ms, 'error', text)
  elseif has_relation(job, 'c') then
    note_waking(job.id)
  end
end

-- Lets a job that was skipped or cancelled wait for its parents again.
local function block(job, now_ms)
  local needs, parents = {}, read_parents(job.id)
  local stored = call('HGETALL', job_key(job.id, 'needs'))
  for i = 1, #stored, 2 do needs[stored[i]] = true end
  for _, parent in ipairs(parents) do
    local relative = read_relative(parent)
    if relative.state then add_child(relative, job.id, needs[parent] and 0 or 1) end
  end
  call('HDEL', job_key(job.id), 'root', 'error', 'ended')
  Jobs.set_state(job, 'blocked', now_ms)
  return #parents
end

-- Does with a blocked job what its parents are for it. Returns how many were read or written.
local function settle_blocked(job, now_ms)
  local left, root, count = evaluate_parents(job.id)
  if root then
    Dependencies.skip(job, root, now_ms)
    return count + #read_parents(job.id)
  end
  return left == 0 and count + unblock(job, now_ms) or count
end

-- Takes a skipped job back: the job because of which it was is tried again.
local function unskip(job, now_ms)
  local left, root, count = evaluate_parents(job.id)
  if root then
    Dependencies.skip(job, root, now_ms)
    return count
  end
  local before = call('HGET', job_key(job.id), 'root')
  if before then redis.pcall('SREM', job_key(before, 'skips'), job.id) end
  if left > 0 then return count + block(job, now_ms) end
  call('HDEL', job_key(job.id), 'root', 'error', 'ended')
  return count + unblock(job, now_ms)
end

-- What RETRY of a job does that has parents: {answer}, or nil where it goes on as with any other.
function Dependencies.retry(job, now_ms)
  if job.state == 'skipped' then
    local root = call('HGET', job_key(job.id), 'root') or ''
    if has_failed(Jobs.state_of(root)) then return { 'skipped', root, Jobs.state_of(root) or 'gone' } end
    unskip(job, now_ms)
    if job.state ~= 'skipped' then return { 'ok', job.state } end
    root = call('HGET', job_key(job.id), 'root')
    return { 'skipped', root, Jobs.state_of(root) or 'gone' }
  end
  local left, root = evaluate_parents(job.id)
  if root then return { 'skipped', root, Jobs.state_of(root) or 'gone' } end
  if left == 0 then return nil end
  block(job, now_ms)
  return { 'ok', job.state }
end

-- Whether this call has done its part: jobs that it notified, and parents that it read or wrote for them.
local function is_budget_spent() return State.notified >= MAX_NOTIFIED or State.steps >= MAX_STEPS end

-- Tells a child that its parent has ended. Returns how many parents were read or written.
local function notify_child(parent, state, child, now_ms)
  local job = Jobs.find(child)
  if not job or job.state ~= 'blocked' then
    redis.pcall('ZREM', job_key(parent, 'children'), child)
    return 1
  end
  local need = call('HGET', job_key(child, 'needs'), parent)
  if need and need ~= 'any' and state ~= 'done' then return settle_blocked(job, now_ms) end
  call('HDEL', job_key(child, 'needs'), parent)
  if call('HLEN', job_key(child, 'needs')) == 0 then return unblock(job, now_ms) end
  redis.pcall('ZADD', job_key(parent, 'children'), 'XX', 1, child)
  return 1
end

-- Takes back a job that was skipped because of one that is tried again. Returns as notify_child.
local function unskip_child(root, id, now_ms)
  local job = Jobs.find(id)
  call('SREM', job_key(root, 'skips'), id)
  local skipped = job and job.state == 'skipped' and call('HGET', job_key(id), 'root') == root
  return skipped and unskip(job, now_ms) or 1
end

-- Does `act` with as many of these jobs as there is room for. Returns true when it was all: a list that is as long as
-- what was asked for may have more behind it.
local function process(ids, limit, handle)
  if ids.err then return true end
  for _, id in ipairs(ids) do
    if is_budget_spent() then return false end
    State.notified, State.steps = State.notified + 1, State.steps + 1 + handle(id)
  end
  return #ids < limit
end

-- Tells the children of a job that has ended.
local function notify_children(parent, state, now_ms)
  local limit = math.max(MAX_NOTIFIED - State.notified, 0) + 1
  local waiting = redis.pcall('ZRANGEBYSCORE', job_key(parent, 'children'), 0, 0, 'LIMIT', 0, limit)
  return process(waiting, limit, function(child) return notify_child(parent, state, child, now_ms) end)
end

local function unskip_children(root, now_ms)
  local limit = math.max(MAX_NOTIFIED - State.notified, 0) + 1
  local skipped = redis.pcall('SRANDMEMBER', job_key(root, 'skips'), limit)
  return process(skipped, limit, function(id) return unskip_child(root, id, now_ms) end)
end

-- Tells those whom the first in ct:waking concerns, then the next, until there is no room. Returns how many, and
-- whether there are more.
local function notify_waiting(now_ms)
  State.is_notifying = true
  while not is_budget_spent() do
    local id = call('ZRANGE', PREFIX .. 'waking', 0, 0)[1]
    if not id then return State.notified, false end
    local state, all = Jobs.state_of(id), true
    if state and is_broken({ id = id, state = state }) then state = 'failed' end
    if not has_failed(state) then all = unskip_children(id, now_ms) end
    if all and (not state or Jobs.TERMINAL[state]) then all = notify_children(id, state, now_ms) end
    if all then call('ZREM', PREFIX .. 'waking', id) else note_waking(id) end -- others have their turn
    State.steps = State.steps + 2
  end
  return State.notified, true
end

-- A job has ended: its children hear of it, at once those that it makes ready. The leader tells the others.
local function notify_after_end(job, now_ms)
  note_waking(job.id)
  if job.state ~= 'done' or State.is_notifying then return end
  local blamed = State.job_id
  State.is_notifying = true
  local ok, all = pcall(notify_children, job.id, job.state, now_ms)
  State.is_notifying, State.job_id, State.refused = false, blamed, false
  if not ok or not all or call('EXISTS', job_key(job.id, 'skips')) == 1 then return end -- some may not be back yet
  call('ZREM', PREFIX .. 'waking', job.id)
end

-- The leader looks at workflows that are due.
local function note_workflow(job)
  local workflow = call('HGET', job_key(job.id), 'workflow')
  if workflow then call('SADD', PREFIX .. 'workflowsdue', workflow) end
end

-- A job with ties has ended, is tried again after its end, or is blocked no longer.
function Dependencies.on_state_change(job, before, now_ms)
  local ended_or_back = Jobs.TERMINAL[job.state] or Jobs.TERMINAL[before]
  if before == 'blocked' or job.state == 'blocked' then Dependencies.count_blocked(job) end
  if before == 'blocked' and Jobs.TERMINAL[job.state] then remove_from_parents(job.id) end
  if ended_or_back and has_relation(job, 'c') then notify_after_end(job, now_ms) end
  if ended_or_back and has_relation(job, 'w') then note_workflow(job) end
  if Jobs.TERMINAL[job.state] and has_relation(job, 'n') then Webhooks.notify(job, now_ms) end
end

-- Of a new job: parents, each with what it is for it; {after | after_any, id} for one that is not there or another
-- tenant's. waits: how many it waits for; root: because of which it is skipped.
function Dependencies.plan(id, owner, given)
  local lists = { given.after, given.after_any }
  local parents, needs = parse_parents(id, lists)
  local plan = { parents = parents, needs = {}, met = {}, waits = 0 }
  for i, parent in ipairs(parents) do
    local relative = read_relative(parent)
    if relative.tenant ~= owner then return nil, { needs[parent] == 'ok' and 'after' or 'after_any', parent } end
    local what, because = evaluate_parent(relative, needs[parent])
    parents[i] = relative
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
function Dependencies.store(job, plan)
  call('HSET', job_key(job.id, 'needs'), unpack(plan.needs))
  for _, parent in ipairs(plan.parents) do add_child(parent, job.id, plan.met[parent.id] and 1 or 0) end
  Dependencies.count_blocked(job)
end

-- How many blocked jobs keep a job from being purged.
function Dependencies.count_waiting(id)
  while true do
    local ids = redis.pcall('ZRANGE', job_key(id, 'children'), 0, 0)
    if ids.err or not ids[1] then return 0 end
    if Jobs.state_of(ids[1]) == 'blocked' then return call('ZCARD', job_key(id, 'children')) end
    call('ZREM', job_key(id, 'children'), ids[1])
  end
end

-- Takes a job that is about to be purged out of what is kept of its parents.
function Dependencies.remove(id)
  local stored = redis.pcall('HMGET', job_key(id), 'root', 'tenant', 'state')
  if type(stored[1]) == 'string' then redis.pcall('SREM', job_key(stored[1], 'skips'), id) end
  if stored[3] ~= 'blocked' then return end -- else it could not be read, and has not ended
  pcall(remove_from_parents, id)
  if Tenants.are_registered() then call('ZREM', PREFIX .. 'blocked:' .. (stored[2] or 'default'), id) end
  call('ZREM', PREFIX .. 'in:blocked', id)
end

-- WAKE -> {jobs notified, 1: call again}. The leader, each second: notifies the children of jobs that have ended, and
-- brings back those that were skipped because of a job that is tried again, as many as one call may.
local function wake()
  local notified, more = notify_waiting(now())
  return { notified, more and 1 or 0 }
end

register({
  { 'wake', wake, 'allow-oom' },
})
