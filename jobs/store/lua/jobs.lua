-- Jobs: a job's hash, its state, and the indexes of jobs by state.

--- Maximum number of a running job's own events, and of progress events that are kept after its end.
local JOB_EVENTS, ENDED_JOB_EVENTS = 1000, 32
--- Number of dead ranges after which a job fails, unless it is a program.
local MAX_DEAD = 16
--- Histogram buckets in seconds.
local BOUNDS, BOUND_NAMES = SETTINGS.bounds, SETTINGS.bound_names

Jobs.STATES = { blocked = 1, queued = 1, running = 1, finishing = 1, done = 1, paused = 1, cancelling = 1,
  cancelled = 1, failed = 1, skipped = 1 }
Jobs.ACTIVE = { running = true, finishing = true, cancelling = true }
Jobs.TERMINAL = { done = true, failed = true, cancelled = true, skipped = true }
Jobs.SCHEDULABLE = { queued = true, running = true, finishing = true }

local TEXTS = { 'state', 'queue', 'kind', 'version', 'tenant', 'relations' }
-- Numbers of a job. Redis reads three to five numbers in the time of one small command, so a function reads only the
-- groups that it needs. The first access to any other number reads its group.
local GROUPS = {
  basic = { 'total', 'cursor', 'done', 'small', 'backlog' },
  state = { 'seq', 'est_ms', 'load', 'ttl_ms', 'created', 'started', 'timeout_ms' },
  slot = { 'holders', 'lanes', 'max_running', 'deferred' },
  progress = { 'grain', 'offset', 'max_ms', 'progress_at', 'rate', 'mark_at', 'mark_done' },
  rare = { 'prefer', 'since' },
}
local GROUP_OF = {}

--- The usual names of queues, by which others need not be parsed.
local IS_QUEUE = {}
for i = 1, #ALL_QUEUES do IS_QUEUE[ALL_QUEUES[i]] = true end

-- Return the names of the numbers in these groups, and of all fields that are read with them.
local function select_groups(...)
  local groups, numbers, fields = { ... }, {}, {}
  for i = 1, #TEXTS do fields[i] = TEXTS[i] end
  for i = 1, #groups do
    local group = GROUPS[groups[i]]
    for at = 1, #group do
      GROUP_OF[group[at]] = group
      numbers[#numbers + 1], fields[#fields + 1] = group[at], group[at]
    end
  end
  return { numbers = numbers, fields = fields }
end

local EVERY_GROUP = select_groups('basic', 'state', 'slot', 'progress', 'rare')
local FOR_STATE = select_groups('basic', 'state')
Jobs.FOR_SLOT = select_groups('basic', 'slot')
Jobs.FOR_LEASE = select_groups('basic', 'state', 'slot', 'progress')

-- Set those numbers of a job that are not set. Return the reason if one of them is invalid.
local function add_numbers(job, names, values, offset)
  for i = 1, #names do
    local name, value = names[i], values[i + offset]
    local number = NUMBER_OF[value] or parse_number(value)
    if not number then return name .. ' is not a number' end
    if not job[name] then job[name] = number end
  end
  if (job.holders or 0) % 1 ~= 0 or (job.lanes or 0) % 1 ~= 0 or (job.grain or 1) < 1 then
    return 'holders, lanes or grain is invalid'
  end
end

local LAZY

-- Read a text of a job and a group of numbers with one command.
local function read_group(job, group, text)
  local values = call('HMGET', job_key(job.id), text, unpack(group))
  local why = add_numbers(setmetatable(job, nil), group, values, 1)
  if why then error({ broken = job.id, why = why }) end
  setmetatable(job, LAZY)
  return values[1]
end

-- Read the group of a number that was not read.
local function read_missing(job, name)
  local group = GROUP_OF[name]
  if not group then return nil end
  read_group(job, group, 'state')
  return job[name]
end

LAZY = { __index = read_missing }

-- Return the specification of a job, and read its numbers for changes of state.
function Jobs.read_spec(job) return read_group(job, GROUPS.state, 'spec') end

-- Return a job from the values of its fields, or nil and the reason why they are invalid.
local function parse(id, groups, values)
  local job = { id = id, state = values[1], queue = values[2], kind = values[3], version = values[4],
    tenant = values[5], relations = values[6] or '', unsaved = false, is_unindexed = false,
    -- Allocate space for the numbers, so that the table is not resized.
    total = nil, cursor = nil, done = nil, small = nil, backlog = nil, holders = nil, lanes = nil, deferred = nil }
  local why = add_numbers(job, groups.numbers, values, #TEXTS)
  if why then return nil, why end
  if not Jobs.STATES[job.state] then return nil, 'unknown state' end
  local is_queue = IS_QUEUE[job.queue] or string.match(job.queue or '', '^%a+%.%a+$')
  if not (job.kind and job.tenant and is_queue) then
    return nil, 'kind, tenant or queue is missing'
  end
  local total, cursor, done = job.total, job.cursor, job.done
  if done < 0 or cursor < 0 or done > total or cursor > total or total < 1 or total > 2 ^ 53 then
    return nil, 'done, cursor and total contradict each other'
  end
  return setmetatable(job, LAZY)
end

-- Return a new job from its fields, or nil and the reason why they are invalid.
function Jobs.new(id, fields)
  local values = {}
  for i, name in ipairs(EVERY_GROUP.fields) do values[i] = fields[name] or false end
  return parse(id, EVERY_GROUP, values)
end

-- Return a job by its ID, or nil and the reason if it is broken. `groups` are its numbers that are read at once.
function Jobs.read(id, groups)
  groups = groups or FOR_STATE
  local values = redis.pcall('HMGET', job_key(id), unpack(groups.fields))
  if values.err then return nil, values.err end
  if not values[1] then return nil end
  return parse(id, groups, values)
end

-- Return a job by its ID, or nil if it is missing or broken. A broken job is quarantined.
function Jobs.find(id, groups)
  if State.broken[id] then return nil end
  local job, why = Jobs.read(id, groups)
  if why then Repairs.quarantine(id, why) end
  State.job_id = job and id or State.job_id
  return job
end

function Jobs.tenant_of(id)
  local name = Tenants.are_registered() and redis.pcall('HGET', job_key(id), 'tenant')
  return type(name) == 'string' and name or 'default'
end

-- Return the state of a job, or nil if it is gone or broken.
function Jobs.state_of(id)
  local state = redis.pcall('HGET', job_key(id), 'state')
  return type(state) == 'string' and Jobs.STATES[state] and state or nil
end

-- Set fields of the job's hash on its next `save`, which writes all of them with one command, because calls are
-- expensive.
function Jobs.set(job, ...)
  local words, unsaved = { ... }, job.unsaved
  if not unsaved then
    job.unsaved = words
    return
  end
  local count = #unsaved
  for i = 1, #words do unsaved[count + i] = words[i] end
end

function Jobs.save(job)
  if job.unsaved then call('HSET', job_key(job.id), unpack(job.unsaved)) end
  job.unsaved = false
end

-- Set the job's share of ct:load in milliseconds. If the counter overflows, its value does not change.
function Jobs.set_load(job, load)
  if load == job.load then return end
  local reply = redis.pcall('HINCRBY', PREFIX .. 'load', job.queue, decimal(load - job.load))
  if type(reply) == 'table' then return end
  Jobs.set(job, 'load', decimal(load))
  job.load = load
end

-- Update ct:load, the milliseconds of queued and running work for one lane, by queue. Deferred jobs and jobs in a
-- backlog do not count, because no worker can take them. The caller saves the job.
function Jobs.update_load(job)
  local load, is_deferred = 0, Tenants.are_registered() and job.deferred == 1
  if (job.state == 'queued' or job.state == 'running') and job.backlog ~= 1 and not is_deferred then
    load = math.floor(job.est_ms * (1 - job.done / job.total))
  end
  Jobs.set_load(job, load)
end

-- Reduce a job's own events to the last 200 state changes and at most `steps` evenly spread progress events.
local function thin_events(id, steps)
  local key, entries, states, progress = job_key(id, 'ev'), call('XRANGE', job_key(id, 'ev'), '-', '+'), 0, 0
  for _, entry in ipairs(entries) do
    if entry[2][6] == 'progress' then progress = progress + 1 else states = states + 1 end
  end
  call('DEL', key)
  local nth, left, share = 0, states, math.min(1, steps / progress)
  for _, entry in ipairs(entries) do
    local keep = left <= 200
    if entry[2][6] == 'progress' then
      nth = nth + 1
      keep = math.floor(nth * share) > math.floor((nth - 1) * share)
    else
      left = left - 1
    end
    if keep then call('XADD', key, entry[1], unpack(entry[2])) end
  end
end

-- Add an event to the cluster's stream and, unless the job is small, to the job's own stream.
function Jobs.emit(job, what, ...)
  local done, total = decimal(job.done), decimal(job.total)
  local id = call('XADD', PREFIX .. 'events', 'MAXLEN', '~', FLEET_EVENTS, '*', 'job', job.id, 'kind', job.kind,
    'type', what, 'state', job.state, 'done', done, 'total', total, 'tenant', job.tenant, ...)
  if job.started == 0 or job.small == 1 then return end
  local events = job_key(job.id, 'ev')
  call('XADD', events, id, 'job', job.id, 'kind', job.kind, 'type', what, 'state', job.state, 'done', done,
    'total', total, 'tenant', job.tenant, ...)
  local most = Jobs.TERMINAL[what] and ENDED_JOB_EVENTS or JOB_EVENTS
  if call('XLEN', events) > most then thin_events(job.id, math.floor(most / 2)) end
end

-- Add a time to a histogram: one count per label and upper bound, and a sum in milliseconds per label.
function Jobs.observe(hash, label, ms)
  ms = math.max(ms, 0) -- the clock may have been set back
  local i = 1
  while BOUNDS[i] and ms > BOUNDS[i] * 1000 do i = i + 1 end
  call('HINCRBY', PREFIX .. hash, label .. '|' .. (BOUND_NAMES[i] or 'inf'), '1')
  call('HINCRBY', PREFIX .. hash, label .. '|sum', decimal(ms))
end

-- Update ct:deadlines, the times at which running jobs with a timeout fail. The timeout is suspended while a job is
-- paused, and restarts with the first lease after a retry.
local function update_deadline(job, state, now_ms)
  local at = call('ZSCORE', PREFIX .. 'deadlines', job.id)
  if state == 'running' then
    local left = tonumber(call('HGET', job_key(job.id), 'left_ms') or job.timeout_ms) or job.timeout_ms
    if not at then call('ZADD', PREFIX .. 'deadlines', decimal(now_ms + left), job.id) end
  elseif at then
    call('ZREM', PREFIX .. 'deadlines', job.id)
  end
  if state == 'paused' and at then
    call('HSET', job_key(job.id), 'left_ms', decimal(math.min(math.max(at - now_ms, 0), job.timeout_ms)))
  elseif state ~= 'paused' then
    call('HDEL', job_key(job.id), 'left_ms')
  end
end

-- Update ct:held:{queue}:{tenant}, held jobs by number of holders, and ct:holding:{queue}, the tenants that can have
-- some. NEXT finds jobs to help with there; a scan of all slots would take time proportional to the number of workers.
function Jobs.update_held_index(job)
  local key = PREFIX .. 'held:' .. job.queue .. ':' .. job.tenant
  if job.holders <= 0 then return call('ZREM', key, job.id) end
  if call('ZADD', key, decimal(job.holders), job.id) == 1 then
    call('SADD', PREFIX .. 'holding:' .. job.queue, job.tenant)
  end
end

-- Add a worker with this many lanes to the job's holders, or remove one if the numbers are negative.
function Jobs.count_holders(job, change, lanes)
  job.holders, job.lanes = job.holders + change, job.lanes + lanes
  call('HSET', job_key(job.id), 'holders', decimal(job.holders), 'lanes', decimal(job.lanes))
  Jobs.update_held_index(job)
end

-- Return whether the job's timeout has passed.
local function is_late(job, now_ms)
  if job.timeout_ms <= 0 or job.state ~= 'running' then return false end
  return tonumber(call('ZSCORE', PREFIX .. 'deadlines', job.id) or math.huge) <= now_ms
end

-- Move a job to another state and update all indexes and counters.
function Jobs.set_state(job, state, now_ms, ...)
  local before, had_ended = job.state, Jobs.TERMINAL[job.state]
  call('ZREM', PREFIX .. 'in:' .. job.state, job.id)
  call('ZADD', PREFIX .. 'in:' .. state, decimal(job.seq), job.id)
  job.state = state
  Jobs.set(job, 'state', state)
  if Jobs.TERMINAL[state] then Jobs.set(job, 'ended', decimal(now_ms)) end
  if Programs.is_program(job) then
    if state == 'finishing' then Queues.remove(job) end -- deriving the result needs no runner with its requirements
    local change = (had_ended and 1 or 0) - (Jobs.TERMINAL[state] and 1 or 0)
    Programs.count_shape(job.tenant, Programs.requirements_of(job), change)
  end
  Jobs.update_load(job)
  Jobs.save(job)
  if not Jobs.SCHEDULABLE[state] and not job.is_unindexed then Queues.remove(job) end
  if Jobs.TERMINAL[state] then
    call('ZADD', PREFIX .. 'expiry', decimal(now_ms + job.ttl_ms), job.id)
    call('HINCRBY', PREFIX .. 'ended', job.kind .. '|' .. state, '1')
    if state == 'done' then
      Jobs.observe('durations', job.kind, now_ms - job.started)
      Usage.add(job, now_ms, 'jobs|' .. job.kind, 1)
      Caps.update_job_size(job.tenant, job.id)
    end
    if not job.is_unindexed then call('ZREM', PREFIX .. 'recheck', job.id) end
  elseif had_ended then
    call('ZREM', PREFIX .. 'expiry', job.id)
  end
  if job.timeout_ms > 0 then update_deadline(job, state, now_ms) end
  local has_freed_capacity = Tenants.are_registered() and Admission.update(job, state)
  Jobs.emit(job, state, ...)
  if has_freed_capacity then Admission.admit_backlog(job.tenant, now_ms, 1) end
  if job.relations ~= '' and (had_ended or Jobs.TERMINAL[state] or before == 'blocked') then
    Dependencies.on_state_change(job, before, now_ms)
  end
end

-- Return whether a running job has only dead ranges left, or too many of them.
local function is_unfinishable(job, leases)
  local dead = call('LLEN', job_key(job.id, 'dead'))
  if dead > MAX_DEAD and not Programs.is_program(job) then return true end
  return dead > 0 and leases == 0 and job.cursor == job.total and call('LLEN', job_key(job.id, 'free')) == 0
    and call('ZCARD', job_key(job.id, 'retry')) == 0
end

local function describe_failure(job)
  local text = call('HGET', job_key(job.id), 'error') or ''
  if not Programs.is_program(job) then return text end
  local units = job.total == 1 and ' unit' or ' units'
  text = decimal(job.total - job.done) .. ' of ' .. decimal(job.total) .. units .. ' failed; ' .. text
  call('HSET', job_key(job.id), 'error', text)
  return text
end

-- End a job that is cancelling without leases, has passed its timeout, or cannot be finished.
function Jobs.settle(job, now_ms)
  local leases = call('ZCARD', job_key(job.id, 'leases'))
  if job.state == 'cancelling' and leases == 0 then
    Jobs.set_state(job, 'cancelled', now_ms)
  elseif is_late(job, now_ms) then
    local text = 'the job ran longer than its timeout of ' .. string.format('%.14g', job.timeout_ms / 1000) .. ' s'
    call('HSET', job_key(job.id), 'error', text)
    Jobs.set_state(job, 'failed', now_ms, 'error', text)
  elseif job.state == 'running' and is_unfinishable(job, leases) then
    Jobs.set_state(job, 'failed', now_ms, 'error', describe_failure(job))
  end
end

-- Move a job whose last unit is committed to `finishing`. Return whether it was moved.
function Jobs.finish_if_complete(job, now_ms)
  if job.done < job.total then return false end
  if job.state == 'cancelling' then Jobs.settle(job, now_ms) return false end
  Jobs.set_state(job, 'finishing', now_ms)
  if job.holders <= 0 then Queues.recheck_at(job, now_ms + 1000) end
  return true
end

-- Move a job to `running`, for the first time or again.
function Jobs.start(job, now_ms)
  if job.started == 0 then
    job.started = now_ms
    Jobs.set(job, 'started', decimal(now_ms), 'mark_at', decimal(now_ms), 'mark_done', decimal(job.done))
    Jobs.observe('waits', job.queue, now_ms - (job.relations == '' and job.created or math.max(job.created, job.since)))
  end
  Jobs.set_state(job, 'running', now_ms)
end
