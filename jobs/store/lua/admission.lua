-- Admission: the limit on a tenant's queued and running jobs (max_jobs), and the backlog of jobs above this limit.

-- Update ct:admitted, the tenant's queued, running and finishing jobs outside its backlog, after a change of the job's
-- state. Return true if this frees capacity for another job.
function Admission.update(job, state)
  if job.backlog == 1 and state ~= 'queued' then
    call('ZREM', PREFIX .. 'backlog:' .. job.tenant, job.id)
    call('HDEL', job_key(job.id), 'backlog')
    job.backlog = 0
  end
  if Jobs.SCHEDULABLE[state] and job.backlog == 0 then
    call('ZADD', PREFIX .. 'admitted:' .. job.tenant, decimal(job.seq), job.id)
  else
    return call('ZREM', PREFIX .. 'admitted:' .. job.tenant, job.id) == 1
  end
end

-- Move a job from the backlog to the queue.
local function admit(job, now_ms)
  call('HDEL', job_key(job.id), 'backlog')
  job.backlog = 0
  Jobs.update_load(job)
  Jobs.save(job)
  call('ZADD', PREFIX .. 'admitted:' .. job.tenant, decimal(job.seq), job.id)
  Queues.reschedule(job, now_ms)
end

-- Admit jobs from the backlog until the tenant reaches max_jobs, at most `most` of them.
function Admission.admit_backlog(name, now_ms, most)
  if call('EXISTS', PREFIX .. 'backlog:' .. name) == 0 then return end
  local previous_job_id, limit = State.job_id, Tenants.share_of(name).max_jobs
  for _ = 1, most do
    if limit > 0 and call('ZCARD', PREFIX .. 'admitted:' .. name) >= limit then break end
    local id = call('ZPOPMIN', PREFIX .. 'backlog:' .. name)[1]
    if not id then break end
    local job = Jobs.find(id)
    if job and job.backlog == 1 then admit(job, now_ms) end
  end
  State.job_id = previous_job_id
end

-- Maximum number of admitted jobs that are read to estimate when capacity becomes free.
local FIRST_ADMITTED = 16

local function to_seconds(ms) return decimal(math.max(1, math.ceil(ms / 1000))) end

-- Return the job's remaining milliseconds, and whether this is based on its current rate. Return 'day' for a job that
-- is deferred until the next day, and nil if the job is unreadable.
local function estimate_remaining_ms(id)
  local row = redis.pcall('HMGET', job_key(id), 'total', 'done', 'est_ms', 'rate', 'lanes', 'deferred')
  if row.err then return nil end
  if row[6] then return 'day' end
  local numbers = {}
  for i = 1, 5 do numbers[i] = parse_number(row[i]) or 0 end
  local total, done, estimate, rate, lanes = unpack(numbers)
  if rate > 0 and lanes > 0 then return (total - done) * 1000 / rate, true end
  return estimate * (1 - done / math.max(total, 1)) / math.max(lanes, 1)
end

-- Return the seconds until the tenant may submit again, and the event that frees capacity: 'end' (a job ends at its
-- measured rate), 'day' (all jobs are deferred until the next day) or '' (unknown). If unknown, the seconds are a guess
-- of at most an hour.
local function estimate_wait(name)
  local measured, guessed, deferred = math.huge, 3600000, 0
  for _, id in ipairs(call('ZRANGE', PREFIX .. 'admitted:' .. name, 0, FIRST_ADMITTED - 1)) do
    local left, is_measured = estimate_remaining_ms(id)
    if left == 'day' then
      deferred = deferred + 1
    elseif is_measured then
      measured = math.min(measured, left)
    elseif left then
      guessed = math.min(guessed, left)
    end
  end
  if measured < math.huge then return to_seconds(measured), 'end' end
  if deferred == call('ZCARD', PREFIX .. 'admitted:' .. name) then
    return to_seconds(DAY_MS - now() % DAY_MS), 'day'
  end
  return to_seconds(guessed), ''
end

-- Return nil if the tenant may have another job, otherwise the rejection: {over, cap, its value, seconds, 0, event}.
function Admission.check(name)
  local most = Tenants.share_of(name).max_jobs
  if most == 0 or call('ZCARD', PREFIX .. 'admitted:' .. name) < most then return nil end
  local seconds, event = estimate_wait(name)
  return { 'over', 'max_jobs', decimal(most), seconds, '0', event }
end

function Admission.put_in_backlog(job)
  call('HSET', job_key(job.id), 'backlog', 1)
  call('ZADD', PREFIX .. 'backlog:' .. job.tenant, call('INCR', PREFIX .. 'seq'), job.id)
  job.backlog = 1
  Jobs.update_load(job)
  Jobs.save(job)
end
