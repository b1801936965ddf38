-- Read before every script. Keys are built here, not passed: RQ rules Redis Cluster out, so nothing is lost by it.
-- @NAME@ is filled in by scripts.py. Times are milliseconds of the server. Ranges are half open.
local P = 'ct:'
local MAX_EXPIRIES, MAX_ERRORS, MAX_DEAD = @MAX_EXPIRIES@, @MAX_ERRORS@, 16
local LEASE_TTL, PROGRAM_TTL, SLOT_TTL, WORKER_TTL = @LEASE_TTL@, @PROGRAM_TTL@, @SLOT_TTL@, @WORKER_TTL@
local KERNEL_CLAIM_TTL, PROGRAM_CLAIM_TTL = @KERNEL_CLAIM_TTL@, @PROGRAM_CLAIM_TTL@
local FLEET_EVENTS, JOB_EVENTS, STORY_EVENTS, PROGRESS_MS, TAKE_MS, DAY_MS =
  100000, 1000, 32, 200, 100, 86400000
-- Virtual time by which a tenant may be ahead of one that waits before its slots yield; one turn in so many is that of a
-- job that has waited for very long; tenants at whose heads NEXT looks.
local LEAD_MS, AGED_TURN, TENANTS_TRIED = 2000, 8, 16
-- Longest wait of a program's unit that failed; SWEEP that comes later than this after the last was away.
local MAX_WAIT, SWEPT_LATE = 3600000, 3000
local function every_queue() return { @QUEUES@ } end

-- What is broken in Redis stops nobody else. A key of another type, or with a content that no script writes, is put
-- aside and its place is empty; a job of which that is true is quarantined. Other errors are Redis' own refusals, such
-- as for want of memory, and go to the caller.
local refused, in_hand, broken = false, nil, {}
-- Values that a script needs again when it runs a second time without a broken job.
local kept = {}

-- Made by `rarely`, which is called first.
local mended, quarantine, put_aside, thin

local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    rarely()
    return mended(reply.err, ...)
  end
  return reply
end

@CLOCK@

-- '%.0f' takes twice as long.
local function num(x) return string.format(x % 1 == 0 and '%d' or '%.0f', x) end
local function key(id, part) return P .. 'job:' .. id .. (part and (':' .. part) or '') end

local NUMBERS = { 'total', 'cursor', 'done', 'grain', 'seq', 'est_ms', 'load', 'holders', 'max_ms', 'ttl_ms', 'small',
  'created', 'started', 'timeout_ms', 'backlog', 'offset', 'lanes', 'max_running', 'deferred' }
-- Numbers that few scripts need, read when one is asked for: Redis looks for each field in turn through all of a hash.
local LATER = { 'prefer', 'progress_at', 'rate', 'mark_at', 'mark_done', 'since' }
local FIELDS = { 'state', 'queue', 'kind', 'version', 'tenant', 'ties', unpack(NUMBERS) }

local STATES = { blocked = 1, queued = 1, running = 1, finishing = 1, done = 1, paused = 1, cancelling = 1, cancelled = 1,
  failed = 1, skipped = 1 }

-- A number as stored, 0 where there is none; nil for what is no number. Infinities and NaN less themselves are not 0.
local function number_in(value)
  if not value then return 0 end
  local number = tonumber(value)
  return number and number - number == 0 and number or nil
end

local LATELY = { __index = function(j, name)
  if name == 'unsaved' then return nil end
  local values = call('HMGET', key(j.id), unpack(LATER))
  for i, later in ipairs(LATER) do
    local number = number_in(values[i])
    if not number then error({ broken = j.id, why = later .. ' is no number' }) end
    if rawget(j, later) == nil then j[later] = number end
  end
  return rawget(j, name)
end }

-- A job by the values of its FIELDS, or nil; and why it is broken, if it is.
local function as_job(id, values)
  local j = { id = id, state = values[1], queue = values[2], kind = values[3], version = values[4],
    tenant = values[5] or 'default', ties = values[6] or '',
    -- Places for all NUMBERS, so that the table does not grow three times.
    total = 0, cursor = 0, done = 0, grain = 0, seq = 0, est_ms = 0, load = 0, holders = 0, max_ms = 0, ttl_ms = 0,
    small = 0, created = 0, started = 0, timeout_ms = 0, backlog = 0, offset = 0, lanes = 0, max_running = 0,
    deferred = 0 }
  for i = 1, #NUMBERS do
    local number = number_in(values[i + 6])
    if not number then return nil, NUMBERS[i] .. ' is no number' end
    j[NUMBERS[i]] = number
  end
  if not STATES[j.state] then return nil, 'state is none' end
  if not j.kind or not string.match(j.queue or '', '^%a+%.%a+$') then return nil, 'kind or queue is none' end
  local low, high = math.min(j.done, j.cursor), math.max(j.done, j.cursor)
  if low < 0 or high > j.total or j.total < 1 or j.total > 2 ^ 53 or j.grain < 1 then return nil, 'its range is none' end
  if j.holders % 1 ~= 0 or j.lanes % 1 ~= 0 then return nil, 'who holds it is no count' end
  return setmetatable(j, LATELY)
end

local function read_job(id)
  local values = redis.pcall('HMGET', key(id), unpack(FIELDS))
  if values.err then return nil, values.err end
  if not values[1] then return nil end
  return as_job(id, values)
end

-- A job that may be worked on; nil for one that is missing or broken.
local function job(id)
  if broken[id] then return nil end
  local j, why = read_job(id)
  if why then
    rarely()
    quarantine(id, why)
  end
  in_hand = j and id or in_hand
  return j
end

-- Redis looks at its memory at a script's first write: one that frees lets all others pass. For scripts that keep, end or
-- free what is there; those that bring new work are refused by a full Redis.
local function even_if_full() call('DEL', P .. 'spare') end

-- Stores the marks that a finished job leaves for good, a JSON list of {mark, range, payload}. The range is opaque, of integers of any size.
local function keep_marks(text)
  for _, mark in ipairs(cjson.decode(text)) do call('HSET', P .. 'mark:' .. mark[1], mark[2], mark[3]) end
end

-- Bells: RQ's queue length is the number of jobs that wait for a worker. A bell is a copy of a job that RQ made itself.
local function ring(queue)
  local id = 'bell-' .. num(call('INCR', P .. 'bells'))
  call('COPY', P .. 'bell:' .. queue, 'rq:job:' .. id)
  call('EXPIRE', 'rq:job:' .. id, 86400)
  call('RPUSH', 'rq:queue:' .. queue, id)
end

-- Tenants. While none is registered there is one, `default`, without caps: nothing is kept for it, and the order of jobs
-- is that of their turns. With the first that is registered, `default` is registered too.
-- What only they need is in tenancy.lua and made when it is needed: each call of a script makes all functions anew.
-- What only tenants with further caps need is in caps.lua, likewise, and what only jobs with ties need in ties.lua.
-- scripts.py declares several, tenancy, further_caps, T, ties, K.
local function by_tenant()
  if several == nil then several = call('EXISTS', P .. 'shares') == 1 end
  if several and not T then T = tenancy() end
  return several
end

-- What a runner executes. Such jobs have a queue of runners, and never another.
local function runs_programs(queue) return string.sub(queue, 1, 7) == 'runner.' end
local function is_program(j) return runs_programs(j.queue) end

-- How long a lease lives without a beat.
local function lease_ttl(j) return is_program(j) and PROGRAM_TTL or LEASE_TTL end

-- JSON of what a program needs of its runner; '' for nothing, and for all other jobs.
local function needs(j)
  if not is_program(j) then return '' end
  if rawget(j, 'needed') == nil then j.needed = call('HGET', key(j.id), 'requirements') or '' end
  return j.needed
end

-- ct:shapes, and ct:shapes:TENANT: how many jobs that have not ended have each requirements, in all and of a tenant.
local function count_shape(name, some, change)
  if some == '' or change == 0 then return end
  for _, shapes in ipairs({ P .. 'shapes', P .. 'shapes:' .. name }) do
    if tonumber(call('ZINCRBY', shapes, change, some)) <= 0 then call('ZREM', shapes, some) end
  end
end

local function class_of(queue) return string.match(queue, '%.(.*)$') end

-- ct:cramped: programs that a runner could not take for want of room, by since when. ct:reserved: job ->
-- runner|until|leases|all|looked: the runner that is kept for it, when that has room by the timeouts of what runs there,
-- the leases that end before, 1 if jobs of higher priorities wait too, and when SWEEP looked last. The runner's hash
-- names the job.
local RESERVED_TTL, CLASSES = 5000, { interactive = 1, high = 2, normal = 3, low = 4 }

local function reservation(id, t)
  local runner, till, leases, all, looked =
    string.match(call('HGET', P .. 'reserved', id) or '', '^(.*)|(%d+)|(%d+)|([01])|(%d+)$')
  if not runner then return nil end
  local age = t - looked
  return { id = id, runner = runner, till = tonumber(till), leases = tonumber(leases), all = all == '1',
    counts = age <= RESERVED_TTL and age >= -RESERVED_TTL }
end

local function end_reservation(id)
  local runner = string.match(call('HGET', P .. 'reserved', id) or '', '^(.*)|%d+|%d+|[01]|%d+$')
  if call('HDEL', P .. 'reserved', id) == 0 or not runner then return nil end
  if call('HGET', P .. 'worker:' .. runner, 'reserved') == id then call('HDEL', P .. 'worker:' .. runner, 'reserved') end
  return runner
end

-- A job of programs that waits for room no longer.
local function forget_wait(id)
  if call('ZREM', P .. 'cramped', id) == 1 then return end_reservation(id) end
end

local function number_at(command, ...) return tonumber(call(command, ...) or 0) or 0 end

-- A replica of a service: a job that runs without an end, takes no slot of its runner, and is named v-SERVICE-NUMBER.
-- ct:waiting_replicas: those that are pending, or that wait in ct:lacked for a runner with what they need.
local function is_replica(id) return string.sub(id, 1, 2) == 'v-' end

local function line_up(queue, name, id, turn)
  if is_replica(id) then call('SADD', P .. 'waiting_replicas', id) end
  call('ZADD', P .. 'pending:' .. queue, turn, id)
  if by_tenant() then T.line_up(queue, name, id, turn) end
end

local function step_out(queue, name, id)
  if is_replica(id) then call('SREM', P .. 'waiting_replicas', id) end
  if by_tenant() then T.step_out(queue, name, id) end
  return call('ZREM', P .. 'pending:' .. queue, id)
end

-- Jobs of tenants that use all their lanes, or that hosts with these labels may not compute: they wait, and ring for
-- nobody. Without labels: that any host may not.
local function capped_out(queue, labels) return by_tenant() and T.capped_out(queue, labels) or 0 end

-- Labels of a worker's host, with commas between: '=' and those that the operator gave it, of a worker that reaches the
-- coordinators alone; else those in its row.
local function labels_of(given, in_row) return string.match(given or '', '^=(.*)$') or in_row or '' end

-- Queues that a call levels at its end, each with the jobs that it got more; nil: each change levels at once.
local unlevelled

-- change: jobs that the queue has got more, where that is known.
local function level(queue, change)
  if unlevelled then
    unlevelled[queue] = (unlevelled[queue] or 0) + (change or math.huge)
    return
  end
  local short = call('ZCARD', P .. 'pending:' .. queue) - capped_out(queue) - call('LLEN', 'rq:queue:' .. queue)
  for _ = 1, math.min(short, 1000) do ring(queue) end
  for _ = 1, math.min(-short, 1000) do
    local bell = call('RPOP', 'rq:queue:' .. queue)
    if bell then call('DEL', 'rq:job:' .. bell) end
  end
end

local function level_later() unlevelled = unlevelled or {} end

local function level_now()
  local some = unlevelled or {}
  unlevelled = nil
  for queue, change in pairs(some) do
    if change ~= 0 then level(queue) end
  end
end

-- Jobs that the last worker to look lacked wait, in their turn, for one that has their kind and its version, and of
-- programs what they need: zsets by queue:kind|version, and |requirements where there are some; the set ct:lacked says
-- which of them may hold something, of queues of runners ct:unfit. A result is derived wherever the kind is.
local CALLED_BACK = 32
local none_lacked -- true: ct:lacked is known to be empty
local function lacked(j, some)
  local name = j.queue .. ':' .. tostring(j.kind) .. '|' .. tostring(j.version)
  some = some or (j.state == 'finishing' and '' or needs(j))
  return some == '' and name or name .. '|' .. some
end
local function note_lacked(j) call('SADD', P .. (is_program(j) and 'unfit' or 'lacked'), lacked(j)) end

-- Jobs that wait for the next day, because their tenant has used the units of their kind that it may use in one.
local function call_up(j)
  if j.deferred == 0 then return end
  call('ZREM', P .. 'deferred:' .. j.tenant .. ':' .. j.kind, j.id)
  call('HDEL', key(j.id), 'deferred')
  j.deferred = 0
end

local function pend(j)
  if j.state == 'finishing' then call_up(j) end -- that needs no further units
  if j.deferred == 1 then
    call('SADD', P .. 'deferred', j.tenant .. ':' .. j.kind)
  elseif not (none_lacked and not is_program(j)) and call('ZSCORE', P .. 'lacked:' .. lacked(j), j.id) then
    note_lacked(j)
  elseif not call('ZSCORE', P .. 'pending:' .. j.queue, j.id) then
    line_up(j.queue, j.tenant, j.id, call('INCR', P .. 'seq'))
    level(j.queue, 1)
  end
  call('ZREM', P .. 'later', j.id)
end

local function unpend(j)
  if step_out(j.queue, j.tenant, j.id) == 1 then level(j.queue) end
  call('ZREM', P .. 'lacked:' .. lacked(j), j.id)
  if is_program(j) then forget_wait(j.id) end
  if needs(j) ~= '' then call('ZREM', P .. 'lacked:' .. lacked(j, needs(j)), j.id) end
  call_up(j)
end

local function leave_to_others(j)
  none_lacked = nil
  call('ZADD', P .. 'lacked:' .. lacked(j), call('ZSCORE', P .. 'pending:' .. j.queue, j.id), j.id)
  step_out(j.queue, j.tenant, j.id)
  if is_replica(j.id) then call('SADD', P .. 'waiting_replicas', j.id) end
  note_lacked(j)
end

local function tenant_of(id)
  local name = by_tenant() and redis.pcall('HGET', key(id), 'tenant')
  return type(name) == 'string' and name or 'default'
end

-- Brings back what a worker with these versions can compute; without them: all.
local function call_back(kinds)
  if none_lacked then return end
  for _, name in ipairs(call('SMEMBERS', P .. 'lacked')) do
    local queue, kind, version = string.match(name, '^(.-):(.*)|(.-)$')
    if queue and (not kinds or (kinds[kind] and num(kinds[kind]) == version)) then
      local back = call('ZPOPMIN', P .. 'lacked:' .. name, CALLED_BACK)
      for i = 1, #back, 2 do line_up(queue, tenant_of(back[i]), back[i], back[i + 1]) end
      if #back < 2 * CALLED_BACK then call('SREM', P .. 'lacked', name) end
      level(queue)
    end
  end
end

local ACTIVE = { running = true, finishing = true, cancelling = true }
local TERMINAL = { done = true, failed = true, cancelled = true, skipped = true }
local PENDABLE = { queued = true, running = true, finishing = true }
local function emit(j, what, ...)
  local id = call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'job', j.id, 'kind', j.kind, 'type', what,
    'state', j.state, 'done', num(j.done), 'total', num(j.total), 'tenant', j.tenant, ...)
  if j.started > 0 and j.small == 0 then
    call('XADD', key(j.id, 'ev'), id, 'job', j.id, 'kind', j.kind, 'type', what, 'state', j.state, 'done', num(j.done),
      'total', num(j.total), 'tenant', j.tenant, ...)
    local most = TERMINAL[what] and STORY_EVENTS or JOB_EVENTS
    if call('XLEN', key(j.id, 'ev')) > most then
      rarely()
      thin(j.id, math.floor(most / 2))
    end
  end
end

-- Fields of a job's hash that its next `save` writes, all in one command: what a command costs is mostly its call.
local function set(j, ...)
  j.unsaved = j.unsaved or {}
  for _, word in ipairs({ ... }) do table.insert(j.unsaved, word) end
end

local function save(j)
  if j.unsaved then call('HSET', key(j.id), unpack(j.unsaved)) end
  j.unsaved = nil
end

-- Makes the job's part of ct:load this many ms. A counter that is full counts no more and stops nothing.
local function charge(j, load)
  if load == j.load then return end
  local reply = redis.pcall('HINCRBY', P .. 'load', j.queue, num(load - j.load))
  if type(reply) == 'table' then return end
  set(j, 'load', num(load))
  j.load = load
end

-- ct:load: milliseconds of one lane's work that wait or run, by queue; not of jobs that wait for the next day or in a
-- backlog, which no worker may take. The caller saves.
local function account(j)
  local load = 0
  if (j.state == 'queued' or j.state == 'running') and j.backlog ~= 1 and not (by_tenant() and j.deferred == 1) then
    load = math.floor(j.est_ms * (1 - j.done / j.total))
  end
  charge(j, load)
end

-- Histograms: per label the count of each upper bound in seconds, the sum in ms and the count. The bounds are metrics.py's.
local BOUNDS = { @BOUNDS@ }
local function observe(hash, label, ms)
  ms = math.max(ms, 0) -- the clock may have stepped back in between
  for _, bound in ipairs(BOUNDS) do
    if ms <= bound * 1000 then
      call('HINCRBY', P .. hash, label .. '|' .. bound, 1)
      break
    end
  end
  call('HINCRBY', P .. hash, label .. '|sum', num(ms))
  call('HINCRBY', P .. hash, label .. '|count', 1)
end

-- ct:deadlines: when a running job with a timeout fails. Its time stands still while it is paused, and begins anew
-- with the first lease after a retry.
local function time_out(j, state, t)
  local at = call('ZSCORE', P .. 'deadlines', j.id)
  if state == 'running' then
    local left = tonumber(call('HGET', key(j.id), 'left_ms') or j.timeout_ms) or j.timeout_ms
    if not at then call('ZADD', P .. 'deadlines', num(t + left), j.id) end
  elseif at then
    call('ZREM', P .. 'deadlines', j.id)
  end
  if state == 'paused' and at then
    call('HSET', key(j.id), 'left_ms', num(math.min(math.max(at - t, 0), j.timeout_ms)))
  elseif state ~= 'paused' then
    call('HDEL', key(j.id), 'left_ms')
  end
end

-- ct:held:{queue}:{tenant}: jobs that workers hold, by how many; ct:holding:{queue}: the tenants that may have some. NEXT
-- looks there for a job to help: all slots would be as many as there are workers.
local function note_holders(j)
  local place = P .. 'held:' .. j.queue .. ':' .. j.tenant
  if j.holders <= 0 then return call('ZREM', place, j.id) end
  call('ZADD', place, num(j.holders), j.id)
  call('SADD', P .. 'holding:' .. j.queue, j.tenant)
end

-- A worker with this many lanes holds the job; less than none: holds it no longer.
local function count_holders(j, change, lanes)
  j.holders, j.lanes = j.holders + change, j.lanes + lanes
  call('HSET', key(j.id), 'holders', num(j.holders), 'lanes', num(j.lanes))
  note_holders(j)
end

local function late(j, t)
  if j.timeout_ms <= 0 or j.state ~= 'running' then return false end
  return tonumber(call('ZSCORE', P .. 'deadlines', j.id) or math.huge) <= t
end

-- ct:usage:{tenant}: what a tenant's jobs used, by day|what. A counter that is full stops nothing.
local function use(j, t, what, amount)
  local sum = redis.pcall('HINCRBY', P .. 'usage:' .. j.tenant, num(math.floor(t / DAY_MS)) .. '|' .. what, num(amount))
  if sum == amount then call('SADD', P .. 'usages', j.tenant) end -- the first of the day
end

-- Notes the size of what is stored of a job, where its tenant has a cap on that.
local function weigh(name, id)
  local caps = by_tenant() and T.caps(name)
  if caps then caps.weigh(name, id) end
end

local function set_state(j, state, t, ...)
  local before, had_ended = j.state, TERMINAL[j.state]
  call('ZREM', P .. 'in:' .. j.state, j.id)
  call('ZADD', P .. 'in:' .. state, num(j.seq), j.id)
  j.state = state
  set(j, 'state', state)
  if TERMINAL[state] then set(j, 'ended', num(t)) end
  if is_program(j) then
    if state == 'finishing' then unpend(j) end -- it needs a runner of its shape no longer
    count_shape(j.tenant, needs(j), (had_ended and 1 or 0) - (TERMINAL[state] and 1 or 0))
  end
  account(j)
  save(j)
  call(ACTIVE[state] and 'SADD' or 'SREM', P .. 'running', j.id)
  if not PENDABLE[state] then unpend(j) end
  if TERMINAL[state] then
    call('ZADD', P .. 'expiry', num(t + j.ttl_ms), j.id)
    call('HINCRBY', P .. 'ended', j.kind .. '|' .. state, 1)
    if state == 'done' then
      observe('durations', j.kind, t - j.started)
      use(j, t, 'jobs|' .. j.kind, 1)
      weigh(j.tenant, j.id)
    end
    call('ZREM', P .. 'later', j.id)
  elseif had_ended then
    call('ZREM', P .. 'expiry', j.id)
  end
  if j.timeout_ms > 0 then time_out(j, state, t) end
  local room = by_tenant() and T.admit_or_dismiss(j, state)
  emit(j, state, ...)
  if room then T.admit_backlog(j.tenant, t, 1) end
  if j.ties ~= '' and (had_ended or TERMINAL[state] or before == 'blocked') then
    K = K or ties()
    K.moved(j, before, t)
  end
end

-- The audit log: one entry for each call that changed something, chained by hashes, in the step that makes the change.
-- A line of it is {"seq":N,BODY,"hash":"H"}; H is the SHA-1 of the hash before it and of {"seq":N,BODY}.
local function log_head()
  local head = call('HMGET', P .. 'audithead', 'seq', 'hash')
  if tonumber(head[1]) and head[2] then return tonumber(head[1]), head[2] end
  local last = call('XREVRANGE', P .. 'auditlog', '+', '-', 'COUNT', 1)[1]
  if last then return tonumber(string.match(last[1], '^%d+')), last[2][2] end
  return 0, string.rep('0', 40)
end

local function quoted(text) return string.find(text, '^[%w_-]*$') and '"' .. text .. '"' or cjson.encode(text) end

local function log_body(t, tenant, token, action, subject, outcome, count)
  return '"t":' .. num(t) .. ',"tenant":' .. quoted(tenant) .. ',"token":' .. quoted(token) .. ',"action":"' .. action ..
    '","subject":' .. quoted(subject) .. ',"outcome":' .. quoted(outcome) .. (count and ',"count":' .. num(count) or '')
end

local function log_line(seq, hash, body)
  local text = num(seq + 1)
  hash = redis.sha1hex(hash .. '{"seq":' .. text .. ',' .. body .. '}')
  call('XADD', P .. 'auditlog', text .. '-0', 'hash', hash, 'body', body)
  call('HSET', P .. 'audithead', 'seq', text, 'hash', hash)
  return seq + 1, hash
end

local function log_change(t, tenant, token, action, subject, outcome, count)
  local seq, hash = log_head()
  log_line(seq, hash, log_body(t, tenant, token, action, subject, outcome, count))
end

-- Ranges. free and dead: lists of lo:hi:expiries:errors. retry: the same, by the time before which it must not be tried.
local function range(lo, hi, expiries, errors)
  return num(lo) .. ':' .. num(hi) .. ':' .. num(expiries) .. ':' .. num(errors)
end

local function split_range(text)
  local lo, hi, expiries, errors = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
  return tonumber(lo), tonumber(hi), tonumber(expiries), tonumber(errors)
end

-- A lease: lo:hi:upto:expiries:errors:granted:lane; where tenants are billed, billed: before the lane.
local function lease_of(id, token)
  local text = call('HGET', key(id, 'lease'), token)
  if not text then return nil end
  local lo, hi, upto, expiries, errors, granted, lane = string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$')
  local billed, name = string.match(lane or '', '^(%d+):(.*)$')
  return { lo = tonumber(lo), hi = tonumber(hi), upto = tonumber(upto), expiries = tonumber(expiries),
    errors = tonumber(errors), granted = tonumber(granted), billed = tonumber(billed), lane = name or lane }
end

local function write_lease(id, token, l)
  call('HSET', key(id, 'lease'), token, num(l.lo) .. ':' .. num(l.hi) .. ':' .. num(l.upto) .. ':' .. num(l.expiries) ..
    ':' .. num(l.errors) .. ':' .. num(l.granted) .. ':' .. (l.billed and num(l.billed) .. ':' or '') .. l.lane)
end

-- A tenant that uses all its lanes.
local function is_capped(name) return by_tenant() and call('SISMEMBER', P .. 'capped', name) == 1 end

-- ct:leased:{worker}: job|token of the leases of programs that a runner has. It is named in their lane, worker/lane.
local function runner_of(l) return string.match(l.lane or '', '^(.*)/') or '' end

-- l: the lease, as read; only: the job has no other.
local function drop_lease(j, token, t, l, only)
  if l and is_program(j) then call('SREM', P .. 'leased:' .. runner_of(l), j.id .. '|' .. token) end
  if only then
    call('DEL', key(j.id, 'lease'), key(j.id, 'leases'))
  else
    call('HDEL', key(j.id, 'lease'), token)
    call('ZREM', key(j.id, 'leases'), token)
  end
  if by_tenant() and call('ZREM', P .. 'lanes:' .. j.tenant, token) == 1 and T.is_limited(j.tenant) then
    T.note_cap(j.tenant, t)
  end
end

-- Tells the workers that have leases of a job, at once, to ask what is to become of these: else they hear with their next
-- beats. Whoever does not listen, or may not be told, loses nothing else.
local function tell_holders(j)
  local told = {}
  for _, token in ipairs(call('HKEYS', key(j.id, 'lease'))) do
    local l = lease_of(j.id, token) or {}
    local worker = string.match(l.lane or '', '^(.*)/') or l.lane
    if worker and not told[worker] then redis.pcall('PUBLISH', P .. 'stops:' .. worker, j.id) end
    if worker then told[worker] = true end
  end
end

-- The last multiple of the job's grain at or below a position, computed without leaving 2^53.
local function on_grain(j, position)
  return position - math.fmod(math.fmod(position, j.grain) + j.offset, j.grain)
end

-- A range that is tried no more, and why: of the first DEAD_TEXTS.
local DEAD_TEXTS = 1000
local function give_up(id, piece, text)
  if call('RPUSH', key(id, 'dead'), piece) > DEAD_TEXTS then return end
  call('HSET', key(id), 'dead|' .. string.match(piece, '^%d+'), text)
end

-- A range whose lane died once more. At the limit it is halved until only the part that kills is left. Halves are
-- leased before all else: what kills everywhere is found after the logarithm of the range, not after the range.
local function lapse(j, l)
  local expiries = l.expiries + 1
  if expiries <= MAX_EXPIRIES then
    call('RPUSH', key(j.id, 'free'), range(l.lo, l.hi, expiries, l.errors))
  elseif l.hi - l.lo == 1 then
    local text = 'lanes died ' .. num(expiries) .. ' times on unit ' .. num(l.lo)
    give_up(j.id, range(l.lo, l.hi, expiries, l.errors), text)
    call('HSETNX', key(j.id), 'error', text)
  else
    local middle = l.lo + math.floor((l.hi - l.lo) / 2)
    local cut = on_grain(j, middle)
    if cut <= l.lo then cut = middle end
    call('LPUSH', key(j.id, 'free'), range(cut, l.hi, MAX_EXPIRIES, l.errors), range(l.lo, cut, MAX_EXPIRIES, l.errors))
  end
end

-- Redis' clock may step back: what would fall due later than ttl from now was meant for a time before that.
local function cap(zset, t, ttl)
  for _, member in ipairs(call('ZRANGEBYSCORE', zset, '(' .. num(t + ttl), '+inf', 'LIMIT', 0, 100)) do
    call('ZADD', zset, num(t + ttl), member)
  end
end

-- Does the same for a key that Redis itself expires.
local function curtail(k, ttl)
  if call('PTTL', k) > tonumber(ttl) then call('PEXPIRE', k, ttl) end
end

-- The longest wait of a range in which the kernel raised this many times.
local function backoff(errors) return math.min(60000, 500 * 2 ^ errors) end

local function cap_job(j, t)
  cap(key(j.id, 'leases'), t, lease_ttl(j))
  cap(key(j.id, 'retry'), t, is_program(j) and MAX_WAIT or backoff(MAX_ERRORS))
end

-- ct:grace: swept, when SWEEP ran last, and until, before which no lease of a program is taken back: while nobody sweeps,
-- runners may be unable to beat. 0: leases of the job are taken back when they expire.
local function spared_until(j, t)
  if not is_program(j) then return 0 end
  local known = call('HMGET', P .. 'grace', 'swept', 'until')
  local swept, till = tonumber(known[1] or nil), tonumber(known[2] or 0) or 0
  if swept and t - swept > SWEPT_LATE then till = t + PROGRAM_TTL end
  return till > t and math.min(till, t + PROGRAM_TTL) or 0
end

local function reclaim(j, t)
  cap_job(j, t)
  if spared_until(j, t) > 0 then return end
  for _, token in ipairs(call('ZRANGEBYSCORE', key(j.id, 'leases'), '-inf', num(t), 'LIMIT', 0, 64)) do
    local l = lease_of(j.id, token)
    drop_lease(j, token, t, l)
    call('HINCRBY', key(j.id), 'expired', 1)
    call('HINCRBY', P .. 'outcomes', 'expired', 1)
    if l then lapse(j, l) end
  end
end

local function earliest(zset)
  local first = call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or math.huge
end

local function due(j, t)
  local expires = earliest(key(j.id, 'leases'))
  if expires <= t then expires = math.max(expires, spared_until(j, t)) end
  return math.min(expires, earliest(key(j.id, 'retry')))
end

-- As many lanes compute the job as its submitter allows at once. Expired leases do not count, unless they are spared.
local function saturated(j, t)
  if j.max_running == 0 then return false end
  local from = spared_until(j, t) > 0 and '-inf' or '(' .. num(t)
  return call('ZCOUNT', key(j.id, 'leases'), from, '+inf') >= j.max_running
end

local function leasable(j, t)
  return (j.cursor < j.total or call('LLEN', key(j.id, 'free')) > 0 or due(j, t) <= t) and not saturated(j, t)
end

-- What an offer of a runner has; jobs/requirements.py has the same rules.
-- A compute capability as a number that can be compared.
local function capability(text)
  local major, minor = string.match(text or '', '^(%d+)%.?(%d*)$')
  return major and major * 1000 + (tonumber(minor) or 0) or 0
end

local function gpus_that_fit(offer, wanted)
  local count, least = 0, capability(wanted.compute_capability)
  for _, gpu in ipairs(offer.gpus or {}) do
    if gpu.memory_mib >= (wanted.gpu_memory_mib or 0) and capability(gpu.compute_capability) >= least then count = count + 1 end
  end
  return count
end

local function gpus_wanted(wanted)
  return wanted.gpus or ((wanted.gpu_memory_mib or wanted.compute_capability) and 1 or 0)
end

local function has_labels(offer, wanted)
  local own = {}
  for _, label in ipairs(offer.labels or {}) do own[label] = true end
  for _, label in ipairs(wanted or {}) do
    if not own[label] then return false end
  end
  return true
end

local function meets(offer, some)
  local wanted = cjson.decode(some)
  return gpus_that_fit(offer, wanted) >= gpus_wanted(wanted) and (offer.cpus or 0) >= (wanted.cpus or 0)
    and (offer.memory_mib or 0) >= (wanted.memory_mib or 0) and (wanted.host or offer.host) == offer.host
    and has_labels(offer, wanted.labels)
end

-- Whether an offer meets requirements, given as JSON; none meets broken ones.
local function is_met(offer, some)
  if some == '' then return true end
  local sound, answer = pcall(meets, offer, some)
  return sound and answer
end

-- What a unit of a job with these requirements, given as JSON, takes of a runner. runner/ledger.py has the same rules.
local AMOUNTS = { 'cpus', 'memory_mib', 'gpus', 'lanes' }
local function amounts(id, some, room)
  local sound, wanted = pcall(cjson.decode, some ~= '' and some or '{}')
  if not sound or type(wanted) ~= 'table' then wanted = {} end
  local lanes = is_replica(id) and 0 or 1
  return { cpus = tonumber(wanted.cpus) or lanes * room.cpus / room.lanes, memory_mib = tonumber(wanted.memory_mib) or 0,
    gpus = tonumber(gpus_wanted(wanted)) or 0, lanes = lanes }, wanted
end

-- Milliseconds that a lease of several units takes, beside the unit that it is at: then others get those behind it.
local LONG_LEASE_MS = 2000

-- What a runner has in all, and what each of its leases takes, with the time by which it ends; none if a unit of it has no
-- timeout. Leases of replicas, which never end, are in `staying`. nil: nothing can be read of it.
local function room_of(worker, t)
  local row = call('HMGET', P .. 'worker:' .. worker, 'offer', 'lanes', 'isolation')
  local sound, offer = pcall(cjson.decode, row[1] or '')
  if not sound or type(offer) ~= 'table' then return nil end
  local room = { offer = offer, cpus = tonumber(offer.cpus) or 0, memory_mib = tonumber(offer.memory_mib) or 0,
    lanes = math.max(tonumber(row[2] or 1) or 1, 1), shared = row[3] ~= 'uid', leases = {}, staying = {} }
  for _, member in ipairs(call('SMEMBERS', P .. 'leased:' .. worker)) do
    local id, token = string.match(member, '^(.-)|(.*)$')
    local l = id and lease_of(id, token)
    if l then
      local values = call('HMGET', key(id), 'requirements', 'unit_ms', 'tenant')
      local unit, taken = tonumber(values[2] or nil), amounts(id, values[1] or '', room)
      taken.tenant = values[3] or 'default'
      taken.ends = unit and math.max(t, math.min(l.granted + (l.hi - l.lo) * unit, t + LONG_LEASE_MS + unit)) or nil
      table.insert(is_replica(id) and room.staying or room.leases, taken)
    end
  end
  return room
end

-- Whether there is room for this beside these leases and those of replicas.
local function has_space(room, leases, own, of, wanted)
  local has = { cpus = room.cpus, memory_mib = room.memory_mib, lanes = room.lanes, gpus = gpus_that_fit(room.offer, wanted) }
  for _, some in ipairs({ leases, room.staying }) do
    for _, each in ipairs(some) do
      if room.shared and each.tenant ~= of then return false end
      for _, name in ipairs(AMOUNTS) do has[name] = has[name] - each[name] end
    end
  end
  for _, name in ipairs(AMOUNTS) do
    if own[name] > 0 and has[name] + 1e-3 < own[name] then return false end
  end
  return true
end

-- Whether a runner has room for a job once all has ended there that has an end.
local function will_have_room(room, j)
  local own, wanted = amounts(j.id, needs(j), room)
  return has_space(room, {}, own, j.tenant, wanted)
end

-- When a runner has room for a job by the timeouts of what runs there, how many leases end before, and how many of those
-- have no timeout, which count as the last and may end at any moment.
local function room_comes(room, j, t)
  local own, wanted = amounts(j.id, needs(j), room)
  local left, till, endless = { unpack(room.leases) }, t, 0
  table.sort(left, function(a, b) return (a.ends or math.huge) > (b.ends or math.huge) end)
  while #left > 0 and not has_space(room, left, own, j.tenant, wanted) do
    local last = table.remove(left)
    if last.ends then till = math.max(till, last.ends) else endless = endless + 1 end
  end
  return till, #room.leases - #left, endless
end

-- Leases that may still run when a job starts on a runner: those beside which it has room.
local function lasting_beside(room, own, of, wanted)
  local some = {}
  for _, each in ipairs(room.leases) do
    if has_space(room, { each }, own, of, wanted) then table.insert(some, each) end
  end
  return some
end

-- How many units of a job a runner may lease now that is kept for another: by a reservation that counts.
local function units_beside(r, j, t)
  if j.id == r.id or j.state == 'finishing' then return math.huge end
  local head = call('HMGET', key(r.id), 'queue', 'requirements', 'tenant')
  local above = CLASSES[class_of(head[1] or '') or ''] or 5
  if not head[1] or (not r.all and (CLASSES[class_of(j.queue)] or 5) < above) then return math.huge end
  local unit = tonumber(call('HGET', key(j.id), 'unit_ms') or nil)
  local most = unit and math.floor((r.till - t) / math.max(unit, 1)) or 0
  if most >= 1 then return most end
  -- It leaves what the other needs.
  local room, of = room_of(r.runner, t), head[3] or 'default'
  if not room or (room.shared and of ~= j.tenant) then return 0 end
  local beside, own, wanted = amounts(j.id, needs(j), room), amounts(r.id, head[2] or '', room)
  local lasting = lasting_beside(room, own, of, wanted)
  for _, name in ipairs(AMOUNTS) do
    if beside[name] == 0 then own[name] = 0 end
  end
  room.shared = false -- whose leases run there is not this job's doing
  return has_space(room, { beside, unpack(lasting) }, own, nil, wanted) and math.huge or 0
end

-- Whoever steps through ct:later takes times beyond LEASE_TTL for those of a clock that has stepped back.
local function set_later(j, t)
  if is_program(j) then t = math.min(t, now() + LEASE_TTL) end
  call('ZADD', P .. 'later', num(t), j.id)
end

-- Puts a job where somebody will look at it again: pending, or later when only leases and backoff are left.
local function rest(j, t)
  if j.backlog == 1 then return end
  if j.state == 'running' or j.state == 'queued' then
    if leasable(j, t) then
      pend(j)
    elseif j.holders <= 0 then
      local at = saturated(j, t) and math.max(earliest(key(j.id, 'leases')), spared_until(j, t)) or due(j, t)
      set_later(j, at < math.huge and at or t)
    end
  elseif j.holders <= 0 then
    if j.state == 'finishing' then
      pend(j)
    elseif j.state == 'cancelling' then
      set_later(j, math.min(earliest(key(j.id, 'leases')), t + 60000))
    end
  end
end

local function settle(j, t)
  local leases = call('ZCARD', key(j.id, 'leases'))
  if j.state == 'cancelling' and leases == 0 then
    set_state(j, 'cancelled', t)
  elseif late(j, t) then
    local text = 'it ran longer than its timeout of ' .. string.format('%.14g', j.timeout_ms / 1000) .. ' s'
    call('HSET', key(j.id), 'error', text)
    set_state(j, 'failed', t, 'error', text)
  elseif j.state == 'running' then
    local dead = call('LLEN', key(j.id, 'dead'))
    if (dead > MAX_DEAD and not is_program(j)) or (dead > 0 and leases == 0 and j.cursor == j.total and call('LLEN', key(j.id, 'free')) == 0
        and call('ZCARD', key(j.id, 'retry')) == 0) then
      local text = call('HGET', key(j.id), 'error') or ''
      if is_program(j) then
        text = num(j.total - j.done) .. ' of ' .. num(j.total) .. (j.total == 1 and ' unit' or ' units') .. ' failed; ' .. text
        call('HSET', key(j.id), 'error', text)
      end
      set_state(j, 'failed', t, 'error', text)
    end
  end
end

-- After a lease ended without finishing the job.
local function after_lease(j, t)
  settle(j, t)
  if j.holders <= 0 then rest(j, t) end
end

local function whole(j, t)
  if j.done < j.total then return false end
  if j.state == 'cancelling' then settle(j, t) return false end
  set_state(j, 'finishing', t)
  if j.holders <= 0 then set_later(j, t + 1000) end
  return true
end

-- ms: of one lane, by the estimate; what the caller bills. more: one more lane computes for the tenant than before.
local function grant(j, token, lo, hi, expiries, errors, ttl, lane, t, ms, more)
  local l = { lo = lo, hi = hi, upto = lo, expiries = expiries, errors = errors, granted = t, lane = lane }
  if by_tenant() then
    l.billed = math.min(math.ceil(ms), j.max_ms)
    if more then T.occupy(j.tenant, token, t, ttl) end
  end
  write_lease(j.id, token, l)
  call('ZADD', key(j.id, 'leases'), num(t + ttl), token)
  if is_program(j) then call('SADD', P .. 'leased:' .. runner_of(l), j.id .. '|' .. token) end
  return l.billed or 0
end

-- Makes a lease that of the units from `lo` on, as if it were granted now.
local function go_on(j, token, l, lo, t)
  l.lo, l.upto, l.expiries, l.errors, l.granted, l.billed = lo, lo, 0, 0, t, l.billed and 0
  local ttl = lease_ttl(j)
  write_lease(j.id, token, l)
  call('ZADD', key(j.id, 'leases'), num(t + ttl), token)
  if by_tenant() then call('ZADD', P .. 'lanes:' .. j.tenant, num(t + ttl), token) end
end

local function start(j, t)
  if j.started == 0 then
    j.started = t
    set(j, 'started', num(t), 'mark_at', num(t), 'mark_done', num(j.done))
    observe('waits', j.queue, t - (j.ties == '' and j.created or math.max(j.created, j.since)))
  end
  set_state(j, 'running', t)
end

-- Spans: what a lane computed, for people to look at. Leases that follow each other on one job, or on small jobs of one
-- kind, are one span: ct:span holds the latest of each lane, ct:spans those before.
local SPAN_GAP_MS, SPAN_MS, SPANS, SPANS_KEPT_MS = 1500, 30000, @SPANS@, 3660000

local function put_span_away(lane, text)
  call('XADD', P .. 'spans', 'MAXLEN', '~', SPANS, '*', 'lane', lane, 'span', text)
end

-- A span: job (empty: several small ones):kind:device:from:to:busy ms:units:leases:jobs:small.
local function span(j, l, device, units, ms, t)
  local id, from, leases, jobs, latest = j.id, l.granted, 1, 1, call('HGET', P .. 'span', l.lane)
  if latest then
    local known, kind, where, a, b, busy, u, n, m, small =
      string.match(latest, '^(.-):(.-):(.-):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d)$')
    local same = b and (known == id or (j.small == 1 and small == '1'))
    if same and kind == j.kind and where == device and l.granted - b <= SPAN_GAP_MS and t - a <= SPAN_MS then
      if known ~= id then id, jobs = '', m + 1 else jobs = tonumber(m) end
      from, ms, units, leases = math.min(a, from), ms + busy, units + u, n + 1
    else
      put_span_away(l.lane, latest)
    end
  end
  call('HSET', P .. 'span', l.lane, table.concat({ id, j.kind, device, num(from), num(t), num(ms), num(units), num(leases),
    num(jobs), num(j.small) }, ':'))
end

-- whole: this lease was all of the job, which nothing was used for before.
local function used(j, l, worker, device, units, ms, t, whole)
  use(j, t, 'ms|' .. device, ms)
  use(j, t, 'units|' .. j.kind, units)
  span(j, l, device, units, ms, t)
  local prefix = 'use|' .. device .. '|' .. worker .. '|'
  if whole then
    set(j, prefix .. 'units', num(units), prefix .. 'ms', num(ms), prefix .. 'leases', 1)
  else
    call('HINCRBY', key(j.id), prefix .. 'units', num(units))
    call('HINCRBY', key(j.id), prefix .. 'ms', num(ms))
    call('HINCRBY', key(j.id), prefix .. 'leases', 1)
  end
  redis.pcall('HINCRBY', P .. 'units', j.kind .. '|' .. device, num(units)) -- a counter that is full stops no commit
  call('HINCRBY', P .. 'outcomes', 'committed', 1)
end

-- Takes a lease away from its lane: the job and what the lease held, or nil for a token that is not alive, and for one
-- whose lease does not begin at the unit `first`, if one is named.
local function take_back(id, token, t, first)
  local j = job(id)
  local l = j and lease_of(id, token)
  if l and first and l.lo ~= first then return nil end
  if l then
    drop_lease(j, token, t, l)
    if by_tenant() then T.settle_bill(j, l, math.min(math.max(t - l.granted, 0), j.max_ms)) end
  end
  return l and j, l
end

local function end_slot(worker) call('ZREM', P .. 'slots', worker) end

-- Takes the job out of a worker's slot, which the caller ends or gives another; the job goes where somebody finds it.
local function park(worker, t)
  local text = call('HGET', P .. 'slotjob', worker)
  call('HDEL', P .. 'slotjob', worker)
  if not text then return end
  local id, lanes = string.match(text, '^(.*)|(%d+)$')
  local j = id and job(id)
  if not j then return end
  count_holders(j, -1, -lanes)
  rest(j, t)
end

-- Slots of the workers of a device: counted, or where other devices have workers, of the fewer of them. any: of all but
-- runners, of which this many live.
local function held_slots(device, runners)
  local held, own, others, count = call('ZCARD', P .. 'slots'), P .. 'workers:' .. device, {}, 0
  if held == 0 or (device == 'any' and runners == 0) then return held end
  for _, other in ipairs(device == 'any' and { 'runner' } or { 'cpu', 'gpu', 'runner' }) do
    if other ~= device then others[#others + 1] = P .. 'workers:' .. other end
  end
  if call('EXISTS', unpack(others)) == 0 then return held end
  for _, other in ipairs(others) do count = count + call('ZCARD', other) end
  if device ~= 'any' and call('ZCARD', own) < count then return #call('ZINTER', 2, own, P .. 'slots') end
  for _, other in ipairs(others) do held = held - #call('ZINTER', 2, other, P .. 'slots') end
  return held
end

-- Rings for idle workers, which may help with so much of a job. Bells that wait already wake as many: else a thousand
-- idle workers would be rung for by each of a thousand jobs. Those of any device are not for runners.
local function ring_for_help(j, most)
  local device = string.match(j.queue, '^(%a+)')
  local runners = device == 'any' and call('ZCARD', P .. 'workers:runner') or 0
  local live = call('ZCARD', P .. (device == 'any' and 'workers' or 'workers:' .. device)) - runners
  local idle = live - call('LLEN', 'rq:queue:' .. j.queue)
  if idle > 0 and most > 0 then idle = idle - held_slots(device, runners) end
  for _ = 1, math.min(idle, most, 1000) do ring(j.queue) end
end

-- Names the accumulator and the first `parts` parts by what they are, as Gathered.digest does. A counter would not do: after
-- lost writes it counts the same numbers again over other parts.
local function digest(id, parts)
  local sums = { redis.sha1hex(call('GET', key(id, 'acc')) or '') }
  if parts > 0 then
    for _, part in ipairs(call('LRANGE', key(id, 'parts'), 0, num(parts - 1))) do sums[#sums + 1] = redis.sha1hex(part) end
  end
  return redis.sha1hex(table.concat(sums))
end

-- An artifact that nobody holds is collected by the leader.
local function let_go(of, id, holder, t)
  call('SREM', P .. 'holders:' .. of .. ':' .. id, holder)
  if call('EXISTS', P .. 'holders:' .. of .. ':' .. id) == 1 then return end
  call('ZREM', P .. 'artifacts:' .. of, id)
  call('ZADD', P .. 'unheld', num(t), of .. '/' .. id)
end

-- Lets go of the artifacts that a job of programs needed, and of those that its units left.
local function purge_program(id, owner, artifacts, some, state)
  if some and not TERMINAL[state] then count_shape(owner, some, -1) end -- it was quarantined, and could not be read
  local held, left, leases = {}, redis.pcall('HKEYS', key(id, 'kept')), redis.pcall('HGETALL', key(id, 'lease'))
  for i = 1, leases.err and 0 or #leases, 2 do
    local runner = runner_of({ lane = string.match(leases[i + 1], '([^:]*)$') })
    call('SREM', P .. 'leased:' .. runner, id .. '|' .. leases[i])
  end
  local sound, given = pcall(cjson.decode, artifacts or '[]')
  for _, artifact in ipairs(sound and type(given) == 'table' and given or {}) do held[tostring(artifact)] = true end
  for _, artifact in ipairs(left.err and {} or left) do held[artifact] = true end
  for artifact in pairs(held) do let_go(owner, artifact, 'job:' .. id, now()) end
end

-- Returns true unless other jobs wait for it.
local function purge(id)
  local stored = redis.pcall('HMGET', key(id), 'idem', 'tenant', 'queue', 'artifacts', 'requirements', 'state', 'ties')
  if type(stored[7]) == 'string' and stored[7] ~= '' then
    K = K or ties()
    if K.waiting_for(id) > 0 then return false end
    K.forget(id)
  end
  local idem, owner = stored[1], stored[2] or 'default'
  if type(idem) == 'string' and idem ~= '' then
    local known = redis.pcall('GET', P .. 'idem:' .. idem)
    if type(known) == 'string' and string.match(known, '^(.-)|') == id then call('DEL', P .. 'idem:' .. idem) end
  end
  if type(stored[3]) == 'string' and runs_programs(stored[3]) then
    purge_program(id, owner, stored[4], stored[5], stored[6])
  end
  call('DEL', key(id), key(id, 'leases'), key(id, 'lease'), key(id, 'free'), key(id, 'retry'), key(id, 'dead'),
    key(id, 'parts'), key(id, 'acc'), key(id, 'ev'), key(id, 'result'), key(id, 'failures'), key(id, 'files'),
    key(id, 'kept'), key(id, 'needs'), key(id, 'children'), key(id, 'skips'))
  for state in pairs(TERMINAL) do call('ZREM', P .. 'in:' .. state, id) end
  call('ZREM', P .. 'jobs', id)
  call('ZREM', P .. 'expiry', id)
  call('ZREM', P .. 'later', id)
  call('ZREM', P .. 'deadlines', id)
  if type(stored[3]) == 'string' and runs_programs(stored[3]) then forget_wait(id) end
  redis.pcall('SREM', P .. 'broken', id)
  if stored[3] then call('ZREM', P .. 'held:' .. stored[3] .. ':' .. owner, id) end
  weigh(owner, id)
  return true
end

-- Files of artifacts, by tenant. ct:files:{tenant}: size:references:objects of each, by its SHA-256; without objects its
-- bytes are lost. ct:filesums: what they make together. A file that no artifact refers to is loose, until a time.
local LOOSE_MS, CONDEMNED_MS, FILES_A_CALL = 86400000, 600000, 1000

local function split_file(text)
  local size, references, objects = string.match(text or '', '^(%d+):(%d+):(.*)$')
  return tonumber(size), tonumber(references), objects
end

-- Tells whether a file is in the index with its bytes.
local function is_stored(of, sha)
  return (select(3, split_file(call('HGET', P .. 'files:' .. of, sha))) or '') ~= ''
end

local function count_files(of, what, files, bytes)
  call('HINCRBY', P .. 'filesums', of .. '|' .. what .. '|files', num(files))
  call('HINCRBY', P .. 'filesums', of .. '|' .. what .. '|bytes', num(bytes))
end

-- ct:unowned: objects, as tenant/name, that are no file's, by when their bytes are deleted.
local function disown(of, objects, at)
  for object in string.gmatch(objects, '[^,]+') do call('ZADD', P .. 'unowned', num(at), of .. '/' .. object) end
end

-- Puts a file into the index, with objects that were just taken out of ct:unowned.
local function add_file(of, sha, size, objects, t)
  local _, references, there = split_file(call('HGET', P .. 'files:' .. of, sha))
  call('HSET', P .. 'files:' .. of, sha, size .. ':' .. num(references or 0) .. ':' .. objects)
  if there then return end -- it was lost, and is counted
  call('ZADD', P .. 'loose', num(t + LOOSE_MS), of .. '/' .. sha)
  count_files(of, 'loose', 1, tonumber(size))
end

local function drop_loose_file(of, sha, t)
  local size, references, objects = split_file(call('HGET', P .. 'files:' .. of, sha))
  call('ZREM', P .. 'loose', of .. '/' .. sha)
  if not size or references > 0 then return end
  call('HDEL', P .. 'files:' .. of, sha)
  disown(of, objects, t + CONDEMNED_MS)
  count_files(of, 'loose', -1, -size)
end

-- The cap of a tenant on stored bytes, or nil.
local function most_stored(of) return by_tenant() and T.caps(of) and T.share_of(of).caps.stored_bytes end

local function stored_of_files(of) return number_at('HGET', P .. 'filesums', of .. '|stored|bytes') end

-- Makes what artifacts store part of what is compared with the cap on stored bytes, beside the sizes of jobs.
local function weigh_files(of)
  if most_stored(of) then T.caps(of).set_size(of, '|files', stored_of_files(of)) end
end

-- Does so with what is kept of workflows beside their jobs.
local function weigh_workflows(of)
  if most_stored(of) then T.caps(of).set_size(of, '|workflows', number_at('HGET', P .. 'workflowbytes', of)) end
end

-- A workflow keeps so many bytes more beside its jobs.
local function grow_workflow(id, of, bytes)
  call('HINCRBY', P .. 'workflow:' .. id, 'bytes', num(bytes))
  call('HINCRBY', P .. 'workflowbytes', of, num(bytes))
  weigh_workflows(of)
end

-- Forgets what has come of these actions, words[first] to words[last].
local function forget_actions(id, of, words, first, last)
  local freed = 0
  for from = first, last, 1000 do
    local some = { unpack(words, from, math.min(from + 999, last)) }
    for _, record in ipairs(call('HMGET', P .. 'workflowrecords:' .. id, unpack(some))) do freed = freed + #(record or '') end
    call('HDEL', P .. 'workflowjobs:' .. id, unpack(some))
    call('HDEL', P .. 'workflowrecords:' .. id, unpack(some))
  end
  if freed > 0 then grow_workflow(id, of, -freed) end
end

-- ct:names:{tenant}: a name points to one artifact, and holds it.
local function point(of, name, id, t)
  local before = call('HGET', P .. 'names:' .. of, name)
  call('HSET', P .. 'names:' .. of, name, id)
  if before and before ~= id then let_go(of, before, 'name:' .. name, t) end
end

-- Takes the object of a manifest for an artifact that is there, whose own may be lost.
local function adopt_manifest(of, id, object, t)
  if call('ZREM', P .. 'unowned', of .. '/' .. object) == 0 then return end
  local place = P .. 'artifact:' .. of .. ':' .. id
  disown(of, call('HGET', place, 'manifest'), t + CONDEMNED_MS)
  call('HSET', place, 'manifest', object)
end

-- Refers to the files of an artifact, whose SHA-256 and sizes are among the words from `first` on, and stores it; the
-- caller has somebody hold it. about: bytes, files, manifest (its object), size (of that). Else changes nothing and returns
-- why: {missing, number of a file, ...} | {over, cap, most, seconds, stored} | {gone}.
local function store_artifact(of, id, about, words, first, t)
  -- Of each run of files what HSET writes, and those that are loose until then.
  local index, runs, missing, added, made = P .. 'files:' .. of, {}, {}, tonumber(about.size), 0
  local match = string.match
  for from = first, #words, 2 * FILES_A_CALL do
    local shas, written, loose = {}, {}, {}
    for i = from, math.min(from + 2 * FILES_A_CALL, #words + 1) - 1, 2 do shas[#shas + 1] = words[i] end
    for i, text in ipairs(call('HMGET', index, unpack(shas))) do
      local size, references, objects = match(text or '', '^(%d+):(%d+):(.+)$')
      if size ~= words[from + 2 * i - 1] then
        missing[#missing + 1] = (from - first) / 2 + i - 1
      else
        written[2 * i - 1], written[2 * i] = shas[i], size .. ':' .. references + 1 .. ':' .. objects
        if references == '0' then
          loose[#loose + 1] = of .. '/' .. shas[i]
          added, made = added + size, made + 1
        end
      end
    end
    runs[#runs + 1] = { written = written, loose = loose }
  end
  if #missing > 0 then return { 'missing', unpack(missing, 1, math.min(#missing, 100)) } end
  local most = most_stored(of)
  if most then
    local stored = number_at('HGET', P .. 'stored', of)
    if stored + added > most then return { 'over', 'max_stored_bytes', num(most), '3600', num(stored) } end
  end
  if call('ZREM', P .. 'unowned', of .. '/' .. about.manifest) == 0 then return { 'gone' } end
  for _, run in ipairs(runs) do
    call('HSET', index, unpack(run.written))
    if #run.loose > 0 then call('ZREM', P .. 'loose', unpack(run.loose)) end
  end
  count_files(of, 'loose', -made, -(added - tonumber(about.size)))
  count_files(of, 'stored', made, added)
  call('HSET', P .. 'artifact:' .. of .. ':' .. id, 'bytes', about.bytes, 'files', about.files, 'created', num(t),
    'manifest', about.manifest, 'manifest_bytes', about.size)
  weigh_files(of)
end

-- Attachments: shells beside running programs. What either side writes is a stream of its own, whose entries are named by
-- the place of the byte behind them: written twice it is there once, and what was read on the other side is dropped.
local ATTACHED_MS, ATTACHED_KEPT, ATTACHED_LOGGED = 30000, 60000, 2592000000
local ATTACHED_BYTES, ATTACHED_ENTRIES = { ['in'] = 32768, out = 131072 }, 256
local function attached_bytes(side, id)
  return (side == 'in' and P .. 'attachment_input:' or P .. 'attachment_output:') .. id
end

local function attached(id)
  local a, found = { id = id }, call('HGETALL', P .. 'attachment:' .. id)
  for i = 1, #found, 2 do a[found[i]] = found[i + 1] end
  return a.state and a or nil
end

local function attachment_member(a) return a.tenant .. '/' .. a.job .. '|' .. a.unit .. '|' .. a.id end

local function wake_attached(id) call('XADD', P .. 'attachment_wakes', 'MAXLEN', '~', 1000, '*', 'id', id) end

-- Its asker was heard now; without that it ends.
local function keep_attached(a, t)
  call('ZADD', P .. 'attachments', num(t + ATTACHED_MS), attachment_member(a))
  -- One that runs outlasts an absence of Redis or of all coordinators: the end of what the audit log has is logged, too.
  call('PEXPIRE', P .. 'attachment:' .. a.id, a.state == 'running' and ATTACHED_LOGGED or ATTACHED_MS + ATTACHED_KEPT)
end

local function end_attached(a, t, exit, reason)
  call('ZREM', P .. 'attachments', attachment_member(a))
  if a.state == 'ended' then return end
  call('HSET', P .. 'attachment:' .. a.id, 'state', 'ended', 'exit', exit, 'reason', reason)
  call('PEXPIRE', P .. 'attachment:' .. a.id, ATTACHED_KEPT)
  if a.state == 'running' then
    local seconds = num(math.floor(math.max(0, t - (tonumber(a.taken) or t)) / 1000))
    log_change(t, a.tenant, a.owner, 'detach', a.job .. '/' .. a.unit, seconds .. ' s, ' .. (exit ~= '' and 'exit ' .. exit or reason))
  end
  a.state, a.exit, a.reason = 'ended', exit, reason
  wake_attached(a.id)
end

-- Ends those whose askers have not been heard for too long.
local function end_silent_attachments(t)
  cap(P .. 'attachments', t, ATTACHED_MS)
  for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'attachments', '-inf', num(t), 'LIMIT', 0, 100)) do
    local a = attached(string.match(member, '[^|]*$'))
    if a then end_attached(a, t, '', 'silent') end
    call('ZREM', P .. 'attachments', member)
  end
end

-- The state of a workflow while this is its attempt, else nil: whoever has planned something in another one was away meanwhile.
local function workflow_state(id, attempt)
  local known = call('HMGET', P .. 'workflow:' .. id, 'state', 'attempt')
  return known[2] == attempt and known[1] or nil
end

-- Workflows: docs/workflows.md. An event says that one has changed.
local function tell_workflow(id, state, owner)
  owner = owner or call('HGET', P .. 'workflow:' .. id, 'tenant') or 'default'
  call('XADD', P .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'workflow', id, 'type', 'workflow', 'state', state,
    'tenant', owner)
end

-- Profiles: docs/profiles.md. ct:profiling is what workers hear of those that live: state|hz|until|hosts.
local PROFILE_PART = 8388608
local function turn_profile(id, state)
  call('HSET', P .. 'profile:' .. id, 'state', state)
  if state == 'done' then
    call('HDEL', P .. 'profiling', id)
    call('DEL', P .. 'profile_claims:' .. id)
    return
  end
  local known = call('HMGET', P .. 'profile:' .. id, 'hz', 'until', 'hosts')
  call('HSET', P .. 'profiling', id, table.concat({ state, known[1], known[2], known[3] }, '|'))
end

local function drop_profile_parts(id)
  for _, field in ipairs(call('HKEYS', P .. 'profile_parts')) do
    if string.match(field, '^(.-)|') == id then call('HDEL', P .. 'profile_parts', field) end
  end
end

local function drop_profile(id)
  drop_profile_parts(id)
  call('HDEL', P .. 'profiling', id)
  call('DEL', P .. 'profile:' .. id, P .. 'profile_claims:' .. id, P .. 'profile_recordings:' .. id)
end
