-- SWEEP queues(json) age reserve -> {slots reaped, jobs put back, jobs purged, 1: call again for more}. The leader, each second;
-- never scans all jobs.
-- age: milliseconds after which a job that waits is aged. reserve: those after which a runner is kept for a program that
-- waits for room; 0: none is.
local SLOTS_AT_ONCE, JOBS_AT_ONCE, PURGES_AT_ONCE = 100, 100, 50
local queues, age = cjson.decode(ARGV[1]), tonumber(ARGV[2])
local CALLED_UP, PINNED_MS, KEPT_MS = 1000, 60000, 3600000
local t = now()
even_if_full()
local swept, spared = unpack(call('HMGET', P .. 'grace', 'swept', 'until'))
if tonumber(swept or nil) and t - swept > SWEPT_LATE then spared = t + PROGRAM_TTL end
call('HSET', P .. 'grace', 'swept', num(t), 'until', num(math.min(tonumber(spared or 0) or 0, t + PROGRAM_TTL)))
cap(P .. 'slots', t, SLOT_TTL)
for _, device in ipairs({ '', ':cpu', ':gpu', ':runner' }) do cap(P .. 'workers' .. device, t, WORKER_TTL) end
local gpu_alive = call('ZCOUNT', P .. 'workers:gpu', num(t), '+inf') > 0
local slots = call('ZRANGEBYSCORE', P .. 'slots', '-inf', num(t), 'LIMIT', 0, SLOTS_AT_ONCE)
for _, worker in ipairs(slots) do
  end_slot(worker)
  park(worker, t)
end

local function look(j)
  if j.state == 'cancelling' or j.state == 'running' or j.state == 'queued' then
    reclaim(j, t)
    settle(j, t)
  end
  rest(j, t)
end

local back = call('ZRANGEBYSCORE', P .. 'later', '-inf', num(t), 'LIMIT', 0, JOBS_AT_ONCE)
-- Times further off than a lease lasts are few, unless the clock stepped back.
local far = call('ZREVRANGEBYSCORE', P .. 'later', '+inf', '(' .. num(t + LEASE_TTL), 'LIMIT', 0, JOBS_AT_ONCE)
for _, list in ipairs({ back, far }) do
  for _, id in ipairs(list) do
    call('ZREM', P .. 'later', id)
    local j = job(id)
    if j then look(j) end
  end
end

for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', num(t), 'LIMIT', 0, JOBS_AT_ONCE)) do
  local j = job(id)
  if j then settle(j, t) end
  if not j or j.state ~= 'running' then call('ZREM', P .. 'deadlines', id) end
end

-- Jobs that an AOF's lost tail left where nobody looks, and leases from before the clock stepped back.
local place = string.match(call('GET', P .. 'sweep') or '', '^%d+$') or '0'
local scan = call('SSCAN', P .. 'running', #place < 20 and place or '0', 'COUNT', 32)
call('SET', P .. 'sweep', scan[1])
for _, id in ipairs(scan[2]) do
  local j = job(id)
  if not j then
    call('SREM', P .. 'running', id)
  else
    cap_job(j, t)
    local deadline = j.timeout_ms > 0 and tonumber(call('ZSCORE', P .. 'deadlines', id) or 0) or 0
    if deadline > t + j.timeout_ms then call('ZADD', P .. 'deadlines', num(t + j.timeout_ms), id) end
    local at = tonumber(call('ZSCORE', P .. 'later', id) or math.huge) -- nobody waits for more than a minute
    if j.holders <= 0 and at > t + 120000 and not call('ZSCORE', P .. 'pending:' .. j.queue, id) then look(j) end
  end
end

-- Jobs that a worker of an earlier version holds, which does not note it: 32 slots a tick.
local function note_slots()
  local from = string.match(call('GET', P .. 'sweep:slots') or '', '^%d+$') or '0'
  local found = call('HSCAN', P .. 'slotjob', #from < 20 and from or '0', 'COUNT', 32)
  if found[1] == '0' then call('DEL', P .. 'sweep:slots') else call('SET', P .. 'sweep:slots', found[1]) end
  for i = 2, #found[2], 2 do
    local id = string.match(found[2][i], '^(.*)|%d+$')
    local j = id and job(id)
    if j and j.holders > 0 then note_holders(j) end
  end
end

note_slots()

-- Returns whether no GPU worker that lives may compute for a tenant.
local function without_gpus()
  if not gpu_alive then return function() return true end end
  local hosts = {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'workers:gpu', '(' .. num(t), '+inf')) do
    local labels = redis.pcall('HGET', P .. 'worker:' .. worker, 'labels')
    hosts[#hosts + 1] = type(labels) == 'string' and labels or ''
  end
  return function(name)
    for _, labels in ipairs(hosts) do
      if not T.bars(name, labels) then return false end
    end
    return true
  end
end

-- Jobs that prefer a GPU move to the any queue: 32 a tick from where the last tick ended, so that none is passed over.
local function move(queue, is_without)
  local place = P .. 'sweep:' .. queue
  local from = call('GET', place)
  from = from and string.match(from, '^%d+$')
  local some = call('ZRANGEBYSCORE', P .. 'pending:' .. queue, from and '(' .. from or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 32)
  for i = 1, #some, 2 do
    local j = job(some[i])
    if j and j.prefer == 1 and is_without(j.tenant) then
      unpend(j)
      charge(j, 0)
      call('ZREM', P .. 'held:' .. queue .. ':' .. j.tenant, j.id)
      j.queue = 'any.' .. string.sub(queue, 5)
      if j.holders > 0 then note_holders(j) end
      account(j)
      set(j, 'queue', j.queue)
      save(j)
      pend(j)
    end
  end
  if #some == 64 then call('SET', place, some[64]) else call('DEL', place) end
end

if not gpu_alive or (by_tenant() and next(T.wanted())) then
  local is_without = without_gpus()
  for _, queue in ipairs(queues) do
    if string.sub(queue, 1, 4) == 'gpu.' then move(queue, is_without) end
  end
end

-- Puts the jobs of a queue whose parts by tenant are not those of the whole back where they belong: a worker of an
-- earlier version keeps none. A part that is too large is cut where NEXT looks at it.
local function sort_out(queue)
  local parts = 0
  for _, name in ipairs(call('ZRANGE', P .. 'order:' .. queue, 0, -1)) do
    parts = parts + call('ZCARD', P .. 'turns:' .. queue .. ':' .. name)
  end
  if parts >= call('ZCARD', P .. 'pending:' .. queue) then return end
  local some = call('ZRANGE', P .. 'pending:' .. queue, 0, 999, 'WITHSCORES')
  for i = 1, #some, 2 do line_up(queue, tenant_of(some[i]), some[i], some[i + 1]) end
end

local function look_after(name)
  cap(P .. 'lanes:' .. name, t, PROGRAM_TTL)
  call('ZREMRANGEBYSCORE', P .. 'lanes:' .. name, '-inf', num(t - 60000))
  T.note_cap(name, t)
  local caps = T.caps(name)
  if not (caps and caps.without_gpu(name, t)) then call('SREM', P .. 'capped', 'gpu:' .. name) end
  if T.bars(name) and T.lanes_of(name, t) == 0 then T.forgo(name) end
  T.admit_backlog(name, t, 100)
end

-- Jobs that waited for the next day are pending again when it has come, or when their tenant's cap was raised.
local function may_go_on(member)
  local name, kind = string.match(member, '^(.-):(.*)$')
  local caps = name and by_tenant() and T.caps(name)
  return not (caps and caps.left(name, 'units|' .. kind, t) <= 0)
end

local function call_up_some(member, most)
  local waiting = P .. 'deferred:' .. member
  local back = call('ZRANGE', waiting, 0, most - 1, 'WITHSCORES')
  for i = 1, #back, 2 do
    local j = job(back[i])
    if j and j.deferred == 1 then
      call_up(j)
      account(j)
      set(j, 'since', num(t)) -- it is not the other tenants who have kept it waiting
      save(j)
      line_up(j.queue, j.tenant, j.id, back[i + 1])
    end
    call('ZREM', waiting, back[i]) -- one that is gone, too
  end
  if #back < 2 * most then call('SREM', P .. 'deferred', member) end
end

-- Together at most about CALLED_UP jobs: at midnight each tenant may have some.
local ready = {}
for _, member in ipairs(call('SMEMBERS', P .. 'deferred')) do
  if may_go_on(member) then ready[#ready + 1] = member end
end
for _, member in ipairs(ready) do call_up_some(member, math.ceil(CALLED_UP / #ready)) end
if by_tenant() then
  for _, queue in ipairs(queues) do sort_out(queue) end
  for _, name in ipairs(call('ZRANGE', P .. 'tenants', 0, -1)) do look_after(name) end
end

-- ct:aged: the queues in which a head has waited for so long that it gets turns that are those of higher priorities, each
-- with the latest time since which such a head has waited.
local function waits_since(id)
  local values = redis.pcall('HMGET', key(id), 'created', 'since')
  return values.err and t or math.max(tonumber(values[1] or t) or t, tonumber(values[2] or 0) or 0)
end

local function has_aged(queue)
  local indexes = { P .. 'pending:' .. queue }
  if by_tenant() then
    indexes = {}
    for _, name in ipairs(call('ZRANGE', P .. 'order:' .. queue, 0, TENANTS_TRIED - 1)) do
      indexes[#indexes + 1] = P .. 'turns:' .. queue .. ':' .. name
    end
  end
  for _, index in ipairs(indexes) do
    local id = call('ZRANGE', index, 0, 0)[1]
    if id and waits_since(id) <= t - age then return true end
  end
end

for _, queue in ipairs(queues) do
  local class = class_of(queue)
  if (class == 'normal' or class == 'low') and has_aged(queue) then
    call('HSET', P .. 'aged', queue, num(t - age))
  else
    call('HDEL', P .. 'aged', queue)
  end
end
if call('EXISTS', P .. 'aged') == 0 then call('DEL', P .. 'aging') end

-- Reservations: a program that has waited for room for long has one runner kept for it, and a runner is kept for one.
local CRAMPED_AT_ONCE = 64
local function reservations(reserve)
local runners, kept = {}, {}

local function kinds_of(text)
  local sound, kinds = pcall(cjson.decode, text or '')
  return sound and type(kinds) == 'table' and kinds or {}
end

for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'workers:runner', '(' .. num(t), '+inf')) do
  local row = redis.pcall('HMGET', P .. 'worker:' .. name, 'drain', 'cordoned', 'kinds', 'kept_until', 'labels')
  if not row.err and row[1] ~= '1' and (row[2] or '') == '' then
    local last = math.min(tonumber(row[4] or 0) or 0, t)
    runners[name] = { room = room_of(name, t), kinds = kinds_of(row[3]), rested = t - last >= reserve, labels = row[5] or '' }
  end
end

-- It could start if a runner did nothing else.
local function waits_for_room(j)
  return j and (j.state == 'queued' or j.state == 'running') and j.backlog ~= 1 and j.deferred ~= 1
    and not is_capped(j.tenant) and leasable(j, t)
end

local function suits(runner, j)
  if by_tenant() and runner and T.bars(j.tenant, runner.labels) then return false end
  return runner and runner.room and num(tonumber(runner.kinds[j.kind]) or -1) == j.version and is_met(runner.room.offer, needs(j))
    and will_have_room(runner.room, j)
end

local function note(name, j, since)
  local till, leases = room_comes(runners[name].room, j, t)
  kept[name] = true
  call('HSET', P .. 'reserved', j.id,
    table.concat({ name, num(till), num(leases), since <= t - age and '1' or '0', num(t) }, '|'))
  call('HSET', P .. 'worker:' .. name, 'reserved', j.id)
end

-- Reservations that still make sense go on.
for _, id in ipairs(call('HKEYS', P .. 'reserved')) do
  local r, j, since = reservation(id, t), job(id), tonumber(call('ZSCORE', P .. 'cramped', id) or nil)
  if reserve > 0 and r and since and waits_for_room(j) and suits(runners[r.runner], j) and not kept[r.runner] then
    note(r.runner, j, since)
  else
    end_reservation(id)
  end
end

-- The runner that has room first, of those that may be kept for the job; and whether any could take it.
local function best_runner(j)
  local best, least, any
  for name, runner in pairs(runners) do
    if suits(runner, j) then
      any = true
      if not kept[name] and runner.rested then
        local till, leases, endless = room_comes(runner.room, j, t)
        local order = { endless, till, leases, name }
        local at = 1
        while least and at < 4 and order[at] == least[at] do at = at + 1 end
        if not least or order[at] < least[at] then best, least = name, order end
      end
    end
  end
  return best, any
end

local waiting = {}
local due = call('ZRANGEBYSCORE', P .. 'cramped', '-inf', num(t - reserve), 'WITHSCORES', 'LIMIT', 0, reserve > 0 and CRAMPED_AT_ONCE or 0)
for i = 1, #due, 2 do
  local j = job(due[i])
  if not waits_for_room(j) then
    call('ZREM', P .. 'cramped', due[i])
  elseif call('HEXISTS', P .. 'reserved', due[i]) == 0 then
    local given = by_tenant() and number_at('HGET', P .. 'finish:' .. class_of(j.queue), j.tenant) or 0
    waiting[#waiting + 1] = { j = j, since = tonumber(due[i + 1]), order = { CLASSES[class_of(j.queue)] or 5, given, tonumber(due[i + 1]), j.seq } }
  end
end
table.sort(waiting, function(a, b)
  local at = 1
  while at < 4 and a.order[at] == b.order[at] do at = at + 1 end
  return a.order[at] < b.order[at]
end)
for _, each in ipairs(waiting) do
  local best, any = best_runner(each.j)
  if best then
    note(best, each.j, each.since)
  elseif not any then
    call('ZADD', P .. 'cramped', 'XX', num(t), each.j.id) -- it waits for such a runner, and not for room
  end
end
end

if call('EXISTS', P .. 'cramped', P .. 'reserved') > 0 then
  cap(P .. 'cramped', t, 0)
  reservations(tonumber(ARGV[3]) or 0)
end

for _, queue in ipairs(queues) do level(queue) end
local old = call('ZRANGEBYSCORE', P .. 'expiry', '-inf', num(t), 'LIMIT', 0, PURGES_AT_ONCE)
-- A workflow may refer to what its jobs gave, also after a retry: they go when it has gone. Returns when to look again.
local function is_kept_until(id)
  local workflow = redis.pcall('HGET', key(id), 'workflow')
  if type(workflow) ~= 'string' or call('EXISTS', P .. 'workflow:' .. workflow) == 0 then return nil end
  local goes = tonumber(call('ZSCORE', P .. 'workflowexpiry', workflow) or nil) or t
  return math.max(t + PINNED_MS, math.min(goes, t + KEPT_MS))
end
for _, id in ipairs(old) do
  local later = is_kept_until(id)
  if not later and not purge(id) then later = t + PINNED_MS end -- others wait for it
  if later then call('ZADD', P .. 'expiry', num(later), id) end
end
for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', num(t))) do
  for _, device in ipairs({ '', ':cpu', ':gpu', ':runner' }) do call('ZREM', P .. 'workers' .. device, worker) end
  if call('TYPE', P .. 'worker:' .. worker).ok == 'hash' then call('HSET', P .. 'worker:' .. worker, 'state', 'lost') end
  call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'type', 'worker', 'worker', worker, 'state', 'lost')
end
local more = #slots == SLOTS_AT_ONCE or #back == JOBS_AT_ONCE or #old == PURGES_AT_ONCE
return { #slots, #back, #old, more and 1 or 0 }
