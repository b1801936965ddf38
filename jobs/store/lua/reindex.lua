-- REINDEX: rebuilds the indexes from the jobs.

--- Maximum submission number.
local MAX_NUMBER = 2 ^ 53

-- Set the submission counter above all numbers that it has returned.
local function renumber()
  local last = read_number('GET', PREFIX .. 'seq')
  if last < 0 or last > MAX_NUMBER then last = 0 end
  local indexes = { PREFIX .. 'jobs' }
  for _, queue in ipairs(ALL_QUEUES) do indexes[#indexes + 1] = PREFIX .. 'pending:' .. queue end
  for _, index in ipairs(indexes) do
    local newest = call('ZREVRANGEBYSCORE', index, decimal(MAX_NUMBER), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    last = math.max(last, tonumber(newest[2] or 0))
  end
  call('SET', PREFIX .. 'seq', decimal(last))
end

-- Return the number of workers that hold each job, and the number of their lanes.
local function count_slots(now_ms)
  local holders, lanes = {}, {}
  local slots = call('HGETALL', PREFIX .. 'slotjob')
  for i = 2, #slots, 2 do
    local id, count = string.match(slots[i], '^(.*)|(%d+)$')
    call('ZADD', PREFIX .. 'slots', 'NX', decimal(now_ms), slots[i - 1])
    if id then holders[id], lanes[id] = (holders[id] or 0) + 1, (lanes[id] or 0) + tonumber(count) end
  end
  return holders, lanes
end

local function index_by_state(job)
  call('ZADD', PREFIX .. 'jobs', decimal(job.seq), job.id)
  for state in pairs(Jobs.STATES) do
    if state ~= job.state then call('ZREM', PREFIX .. 'in:' .. state, job.id) end
  end
  call('ZADD', PREFIX .. 'in:' .. job.state, decimal(job.seq), job.id)
end

local function index_by_tenant(job)
  if not Tenants.are_registered() then return end
  Admission.update(job, job.state)
  Dependencies.count_blocked(job)
  if job.backlog == 1 then call('ZADD', PREFIX .. 'backlog:' .. job.tenant, 'NX', decimal(job.seq), job.id) end
  if job.deferred == 1 then
    call('ZADD', PREFIX .. 'deferred:' .. job.tenant .. ':' .. job.kind, 'NX', decimal(job.seq), job.id)
  end
end

local function recount(job, holders, lanes)
  job.holders, job.lanes, job.load = holders, lanes, 0
  Jobs.set(job, 'holders', decimal(holders), 'lanes', decimal(lanes), 'load', 0)
  Jobs.update_load(job)
  Jobs.save(job)
  Jobs.update_held_index(job)
end

-- Add an unfinished job to the indexes in which workers and SWEEP find it.
local function index_for_work(job, now_ms)
  Programs.count_shape(job.tenant, Programs.requirements_of(job), 1)
  if job.state == 'running' and job.timeout_ms > 0 then
    call('ZADD', PREFIX .. 'deadlines', 'NX', decimal(math.min(now_ms, job.started) + job.timeout_ms), job.id)
  end
  if job.state == 'running' and job.done == job.total then Jobs.finish_if_complete(job, now_ms) end
  Queues.reschedule(job, now_ms)
end

-- REINDEX id ... -> number of jobs that exist
-- Add these jobs to all indexes again. The caller has removed load and shapes, which are counted from zero.
local function reindex(args)
  local now_ms, count = now(), 0
  renumber()
  local holders, lanes = count_slots(now_ms)
  for _, id in ipairs(args) do
    local job = Jobs.find(id)
    if job then
      count = count + 1
      index_by_state(job)
      index_by_tenant(job)
      recount(job, holders[id] or 0, lanes[id] or 0)
      if Jobs.TERMINAL[job.state] then
        call('ZADD', PREFIX .. 'expiry', 'NX', decimal(now_ms + job.ttl_ms), id)
      else
        index_for_work(job, now_ms)
      end
    end
  end
  return count
end

register({
  { 'reindex', reindex, 'allow-oom' },
})
