-- Dependencies between jobs. See docs/lease-protocol.md.
-- The field `relations` of a job has one letter per relation. c: other jobs wait for it or were skipped because of it.
-- p: it waited for other jobs. w: it belongs to a workflow. n: a webhook is notified of its end. A job's parents are
-- the jobs that must end before it; the job is their child.

-- Limits of one call: number of notified children, and number of parents read or written for them.
local MAX_NOTIFIED = 64
local MAX_STEPS = 600

local function has_relation(job, letter) return string.find(job.relations, letter, 1, true) ~= nil end

-- Return whether jobs that need this one to be done cannot start unless it is retried.
local function has_failed(state) return not state or state == 'failed' or state == 'cancelled' end

-- Return the relevant fields of a parent or child. The state is nil if the job is gone or broken.
local function read_relative(id)
  local row = redis.pcall('HMGET', job_key(id), 'state', 'root', 'tenant', 'relations')
  local state = not row.err and Jobs.STATES[row[1]] and row[1] or nil
  if not state then return { id = id } end
  return { id = id, state = state, root = row[2], tenant = row[3], relations = row[4] or '' }
end

-- Return whether the job was found broken but could not be stored as failed.
local function is_broken(relative)
  if State.has_broken == nil then State.has_broken = call('EXISTS', PREFIX .. 'broken') == 1 end
  return State.has_broken and not Jobs.TERMINAL[relative.state]
    and call('SISMEMBER', PREFIX .. 'broken', relative.id) == 1
end

-- Return the effect of a parent on a child that needs it to be done (ok) or to have ended (any): 'met', 'waits', or
-- 'skip' and the ID of the job that causes the skip.
local function evaluate_parent(relative, need)
  local state = relative.state
  if state and is_broken(relative) then state = 'failed' end
  if state == 'done' or (need == 'any' and (not state or Jobs.TERMINAL[state])) then return 'met' end
  if has_failed(state) then return 'skip', relative.id end
  local root = state == 'skipped' and relative.root
  if root and has_failed(Jobs.state_of(root)) then return 'skip', root end
  return 'waits'
end

-- Return a job's parents in the order in which they were named, with the need for each of them.
local function parse_parents(id, lists)
  local parents, needs = {}, {}
  for i, need in ipairs({ 'ok', 'any' }) do
    local ok, listed = pcall(cjson.decode, lists[i] or '[]')
    if not ok or type(listed) ~= 'table' then error({ broken = id, why = 'after is not a list' }) end
    for _, parent in ipairs(listed) do
      if not needs[parent] then parents[#parents + 1], needs[parent] = parent, need end
    end
  end
  return parents, needs
end

local function read_parents(id) return parse_parents(id, call('HMGET', job_key(id), 'after', 'after_any')) end

-- ct:waking has jobs that ended or were retried and whose children were not all notified.
local function note_waking(id) call('ZADD', PREFIX .. 'waking', call('INCR', PREFIX .. 'seq'), id) end

-- Record a broken job with children. They are skipped as if it had failed.
function Dependencies.note_broken(id)
  if redis.pcall('EXISTS', job_key(id, 'children')) == 1 then note_waking(id) end
end

-- Record that a job has children, or jobs that were skipped because of it.
local function note_children(relative)
  if has_relation(relative, 'c') then return end
  call('HSET', job_key(relative.id), 'relations', relative.relations .. 'c')
end

-- ct:job:{parent}:children has blocked jobs with score 0 if they wait for this parent, and 1 if they wait only for
-- others. A parent with children is not purged. A broken parent must not stop the child.
local function add_child(parent, child, score)
  redis.pcall('ZADD', job_key(parent.id, 'children'), score, child)
  note_children(parent)
  if parent.state == 'skipped' then note_waking(parent.id) end -- WAKE decides whether it stays skipped
end

local function remove_from_parents(id)
  local parents = read_parents(id)
  for _, parent in ipairs(parents) do redis.pcall('ZREM', job_key(parent, 'children'), id) end
  return #parents
end

-- ct:blocked:{tenant} has the tenant's blocked jobs.
function Dependencies.count_blocked(job)
  if not Tenants.are_registered() then return end
  if job.state == 'blocked' then
    call('ZADD', PREFIX .. 'blocked:' .. job.tenant, decimal(job.seq), job.id)
  else
    call('ZREM', PREFIX .. 'blocked:' .. job.tenant, job.id)
  end
end

-- Remove satisfied parents from ct:job:{id}:needs. The hash has the other parents and the need for each of them.
local function mark_met(id, parents)
  if #parents == 0 then return end
  call('HDEL', job_key(id, 'needs'), unpack(parents))
  for _, parent in ipairs(parents) do redis.pcall('ZADD', job_key(parent, 'children'), 'XX', 1, id) end
end

-- Evaluate all parents of a job. Return the number of unfinished parents, the ID of the job because of which it cannot
-- run (or nil), and the number of parents that were read.
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
  return 'job ' .. root.id .. ', on which it depends, ' .. why
end

-- ct:job:{root}:skips has the jobs that were skipped because of this one, directly or through others.
function Dependencies.skip(job, root, now_ms)
  local relative, before = read_relative(root), call('HGET', job_key(job.id), 'root')
  local text = describe_skip(relative)
  if before then redis.pcall('SREM', job_key(before, 'skips'), job.id) end
  call('HSET', job_key(job.id), 'root', root, 'error', text)
  if relative.state then
    redis.pcall('SADD', job_key(root, 'skips'), job.id)
    note_children(relative)
  end
  if job.state ~= 'skipped' then
    Jobs.set_state(job, 'skipped', now_ms, 'error', text)
  elseif has_relation(job, 'c') then
    note_waking(job.id)
  end
end

-- Make a skipped or cancelled job wait for its parents again.
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

-- Skip or unblock a blocked job if its parents require it. Return the number of jobs that were read or written.
local function settle_blocked(job, now_ms)
  local left, root, count = evaluate_parents(job.id)
  if root then
    Dependencies.skip(job, root, now_ms)
    return count + #read_parents(job.id)
  end
  return left == 0 and count + unblock(job, now_ms) or count
end

-- Restore a skipped job after the job that caused the skip was retried.
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

-- Handle RETRY of a job that has parents. Return the reply, or nil if the job is retried like any other job.
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

-- Return whether this call has reached MAX_NOTIFIED or MAX_STEPS.
local function is_budget_spent() return State.notified >= MAX_NOTIFIED or State.steps >= MAX_STEPS end

-- Notify a child of the end of its parent. Return the number of parents that were read or written.
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

-- Restore a job that was skipped because of the retried job `root`. Return the number of jobs that were read or
-- written.
local function unskip_child(root, id, now_ms)
  local job = Jobs.find(id)
  call('SREM', job_key(root, 'skips'), id)
  local skipped = job and job.state == 'skipped' and call('HGET', job_key(id), 'root') == root
  return skipped and unskip(job, now_ms) or 1
end

-- Call `handle` for each ID until the budget is spent. Return true if all IDs were handled. A list with `limit` items
-- may be incomplete.
local function process(ids, limit, handle)
  if ids.err then return true end
  for _, id in ipairs(ids) do
    if is_budget_spent() then return false end
    State.notified, State.steps = State.notified + 1, State.steps + 1 + handle(id)
  end
  return #ids < limit
end

-- Notify the children of a job that ended.
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

-- Process the jobs in ct:waking until the budget is spent. Return the number of notified jobs, and whether more are
-- left.
local function notify_waiting(now_ms)
  State.is_notifying = true
  while not is_budget_spent() do
    local id = call('ZRANGE', PREFIX .. 'waking', 0, 0)[1]
    if not id then return State.notified, false end
    local state, all = Jobs.state_of(id), true
    if state and is_broken({ id = id, state = state }) then state = 'failed' end
    if not has_failed(state) then all = unskip_children(id, now_ms) end
    if all and (not state or Jobs.TERMINAL[state]) then all = notify_children(id, state, now_ms) end
    if all then call('ZREM', PREFIX .. 'waking', id) else note_waking(id) end -- move it to the end, for fairness
    State.steps = State.steps + 2
  end
  return State.notified, true
end

-- Notify the children of a finished job. If it is done, notify the unblocked children now; the leader notifies the
-- others.
local function notify_after_end(job, now_ms)
  note_waking(job.id)
  if job.state ~= 'done' or State.is_notifying then return end
  local blamed = State.job_id
  State.is_notifying = true
  local ok, all = pcall(notify_children, job.id, job.state, now_ms)
  State.is_notifying, State.job_id, State.refused = false, blamed, false
  if not ok or not all or call('EXISTS', job_key(job.id, 'skips')) == 1 then return end
  call('ZREM', PREFIX .. 'waking', job.id)
end

-- Make the leader process the job's workflow.
local function note_workflow(job)
  local workflow = call('HGET', job_key(job.id), 'workflow')
  if workflow then call('SADD', PREFIX .. 'workflowsdue', workflow) end
end

-- Handle a job with relations that ended, was retried after its end, or is no longer blocked.
function Dependencies.on_state_change(job, before, now_ms)
  local ended_or_back = Jobs.TERMINAL[job.state] or Jobs.TERMINAL[before]
  if before == 'blocked' or job.state == 'blocked' then Dependencies.count_blocked(job) end
  if before == 'blocked' and Jobs.TERMINAL[job.state] then remove_from_parents(job.id) end
  if ended_or_back and has_relation(job, 'c') then notify_after_end(job, now_ms) end
  if ended_or_back and has_relation(job, 'w') then note_workflow(job) end
  if Jobs.TERMINAL[job.state] and has_relation(job, 'n') then Webhooks.notify(job, now_ms) end
end

-- Return the plan of a new job. parents: all parents. needs: the need for each unfinished parent. met: the other
-- parents. waits: number of unfinished parents. root: the job because of which it is skipped. Return nil and {after |
-- after_any, id} if a parent does not exist or belongs to another tenant.
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

-- Write the dependencies of a new job.
function Dependencies.store(job, plan)
  call('HSET', job_key(job.id, 'needs'), unpack(plan.needs))
  for _, parent in ipairs(plan.parents) do add_child(parent, job.id, plan.met[parent.id] and 1 or 0) end
  Dependencies.count_blocked(job)
end

-- Return the number of blocked jobs that prevent a job from being purged.
function Dependencies.count_waiting(id)
  while true do
    local ids = redis.pcall('ZRANGE', job_key(id, 'children'), 0, 0)
    if ids.err or not ids[1] then return 0 end
    if Jobs.state_of(ids[1]) == 'blocked' then return call('ZCARD', job_key(id, 'children')) end
    call('ZREM', job_key(id, 'children'), ids[1])
  end
end

-- Remove a job that is about to be purged from the keys of its parents.
function Dependencies.remove(id)
  local stored = redis.pcall('HMGET', job_key(id), 'root', 'tenant', 'state')
  if type(stored[1]) == 'string' then redis.pcall('SREM', job_key(stored[1], 'skips'), id) end
  if stored[3] ~= 'blocked' then return end -- a blocked job is purged only if it is broken
  pcall(remove_from_parents, id)
  if Tenants.are_registered() then call('ZREM', PREFIX .. 'blocked:' .. (stored[2] or 'default'), id) end
  call('ZREM', PREFIX .. 'in:blocked', id)
end

-- WAKE -> {jobs notified, 1: call again}
-- The leader calls this every second. Notify the children of ended jobs, and restore jobs that were skipped because of
-- a retried job, within the limits of one call.
local function wake()
  local notified, more = notify_waiting(now())
  return { notified, more and 1 or 0 }
end

register({
  { 'wake', wake, 'allow-oom' },
})
