-- Retries of ended jobs and of dead ranges.

-- Return ranges in order, with adjacent ones merged: each failed unit of a program is a range.
local function merge_ranges(ranges)
  local merged = {}
  table.sort(ranges, function(left, right) return left.lo < right.lo end)
  for _, each in ipairs(ranges) do
    local last = merged[#merged]
    if last and last.hi == each.lo then last.hi = each.hi else merged[#merged + 1] = each end
  end
  return merged
end

local function parse_ranges(pieces)
  local ranges = {}
  for i, piece in ipairs(pieces) do
    local lo, hi = Ranges.parse(piece)
    ranges[i] = { lo = lo, hi = hi }
  end
  return ranges
end

local function push_free(id, ranges)
  for from = 1, #ranges, 1000 do
    local texts = {}
    for i = from, math.min(from + 999, #ranges) do
      texts[#texts + 1] = Ranges.format(ranges[i].lo, ranges[i].hi, 0, 0)
    end
    call('RPUSH', job_key(id, 'free'), unpack(texts))
  end
end

-- Delete the errors of dead ranges.
local function drop_errors(id, pieces)
  for from = 1, #pieces, 1000 do
    local names = {}
    for i = from, math.min(from + 999, #pieces) do names[#names + 1] = 'dead|' .. string.match(pieces[i], '^%d+') end
    call('HDEL', job_key(id), unpack(names))
  end
end

-- Remove and return the first ranges of a list, up to the limit of one call.
local function take_batch(list)
  local batch = call('LRANGE', list, 0, SETTINGS.retried_ranges - 1)
  call('LTRIM', list, #batch, -1)
  return batch
end

-- Move ranges of a program to `retry`, scored by their first unit. Times are larger than any unit.
local function collect_batch(job, stage)
  local id = job.id
  local retry, pieces = job_key(id, 'retry'), take_batch(job_key(id, 'dead'))
  drop_errors(id, pieces)
  if #pieces == 0 and stage ~= 'join' then pieces = take_batch(job_key(id, 'free')) end
  if #pieces == 0 then
    pieces = call('ZRANGEBYSCORE', retry, '(' .. decimal(job.total), '+inf', 'LIMIT', 0, SETTINGS.retried_ranges)
    for _, piece in ipairs(pieces) do call('ZREM', retry, piece) end
  end
  for _, piece in ipairs(pieces) do
    local lo, hi = Ranges.parse(piece)
    call('ZADD', retry, decimal(lo), Ranges.format(lo, hi, 0, 0))
  end
  return #pieces
end

-- Move ranges back from `retry` in order, with adjacent ones merged.
local function merge_batch(id)
  local pieces = call('ZRANGE', job_key(id, 'retry'), 0, SETTINGS.retried_ranges - 1)
  if #pieces == 0 then return 0 end
  call('ZREMRANGEBYRANK', job_key(id, 'retry'), 0, #pieces - 1)
  local last = call('RPOP', job_key(id, 'free'))
  if last then table.insert(pieces, 1, last) end
  push_free(id, merge_ranges(parse_ranges(pieces)))
  return #pieces
end

-- Move a batch of ranges, because moving all could take too long for one call. Any caller can make the next call.
-- Return nil if there are few ranges, otherwise whether more are left.
local function requeue_batch(job)
  local id = job.id
  local stage = call('HGET', job_key(id), 'retry_stage')
  local count = call('LLEN', job_key(id, 'dead')) + call('LLEN', job_key(id, 'free'))
    + call('ZCARD', job_key(id, 'retry'))
  if not stage and count <= SETTINGS.retried_ranges then return nil end
  local next_stage = collect_batch(job, stage) > 0 and 'gather' or 'join'
  if next_stage ~= stage then call('HSET', job_key(id), 'retry_stage', next_stage) end
  return next_stage == 'gather' or merge_batch(id) > 0
end

local function requeue_all(job)
  local id = job.id
  local pieces = call('LRANGE', job_key(id, 'dead'), 0, -1)
  drop_errors(id, pieces)
  local free, retry = call('LRANGE', job_key(id, 'free'), 0, -1), call('ZRANGE', job_key(id, 'retry'), 0, -1)
  for _, list in ipairs({ free, retry }) do
    for _, piece in ipairs(list) do pieces[#pieces + 1] = piece end
  end
  call('DEL', job_key(id, 'dead'), job_key(id, 'retry'), job_key(id, 'free'))
  local ranges = parse_ranges(pieces)
  push_free(id, Programs.is_program(job) and merge_ranges(ranges) or ranges)
end

-- Continue after a unit was retried between two calls of RETRY: the job is active, and the other ranges follow like
-- that unit. Return whether more are left.
local function continue_retry(job, version, now_ms)
  local id = job.id
  if call('HEXISTS', job_key(id), 'retry_stage') == 0 or job.version ~= version then return false end
  local pieces = take_batch(job_key(id, 'dead'))
  if #pieces == 0 then
    call('HDEL', job_key(id), 'retry_stage')
    return false
  end
  Leases.reclaim(job, now_ms)
  drop_errors(id, pieces)
  push_free(id, parse_ranges(pieces))
  Queues.reschedule(job, now_ms)
  return true
end

-- RETRY id version tenant token hold [workflow attempt] -> {ok|conflict, state} | {version, stored} | {missing} |
-- {stale} | {over, cap, value, seconds} | {more} | {skipped, job, its state | gone}
-- Retry the unfinished ranges. `more` means that ranges were moved and the caller must call again. `skipped` names a
-- job that must be retried first. `hold` is the same as in SUBMIT. `stale` means that the workflow is no longer running
-- this attempt.
local function retry(args)
  local id, version, actor, token, hold, workflow, attempt = unpack(args)
  local now_ms = now()
  local workflow_state = workflow and Workflows.state_in_attempt(workflow, attempt)
  if workflow and workflow_state ~= 'running' and workflow_state ~= 'waiting' then return { 'stale' } end
  local job = Jobs.find(id)
  if not job then return { 'missing' } end
  if Jobs.SCHEDULABLE[job.state] then
    if continue_retry(job, version, now_ms) then return { 'more' } end
    return { 'ok', job.state }
  end
  if job.state == 'blocked' then return { 'ok', job.state } end
  if job.state ~= 'failed' and job.state ~= 'cancelled' and job.state ~= 'skipped' then
    return { 'conflict', job.state }
  end
  if job.version ~= version then return { 'version', job.version } end
  if string.find(job.relations, 'p', 1, true) then
    local answer = Dependencies.retry(job, now_ms)
    if answer and answer[1] == 'ok' then Audit.log(now_ms, actor, token, 'retry', id, job.state) end
    if answer then return answer end
  end
  local refused = Tenants.are_registered() and Admission.check(job.tenant)
  if refused and hold ~= '1' then return refused end
  Leases.reclaim(job, now_ms)
  local more
  if Programs.is_program(job) then more = requeue_batch(job) end
  if more then return { 'more' } end
  if more == nil then requeue_all(job) end
  call('HSET', job_key(id), 'since', decimal(now_ms))
  call('HDEL', job_key(id), 'error', 'ended', 'derive_crashes', 'retry_stage')
  if refused and job.done < job.total then Admission.put_in_backlog(job) end
  Jobs.set_state(job, 'queued', now_ms)
  if job.done == job.total then Jobs.set_state(job, 'finishing', now_ms) end
  Queues.reschedule(job, now_ms)
  Audit.log(now_ms, actor, token, 'retry', id, job.state)
  return { 'ok', job.state }
end

-- RETRY_DEAD id first version tenant token hold -> {ok|conflict, state} | {version, stored} | {missing} | {none} |
-- {over, cap, value, seconds}
-- Retry the dead range that starts at unit `first`. `hold` is the same as in SUBMIT.
local function retry_dead(args)
  local id, first, version = args[1], args[2], args[3]
  local now_ms = now()
  local job = Jobs.find(id)
  if not job then return { 'missing' } end
  if job.state ~= 'failed' and not Jobs.SCHEDULABLE[job.state] and job.state ~= 'paused' then
    return { 'conflict', job.state }
  end
  if job.version ~= version then return { 'version', job.version } end

  local piece
  for _, text in ipairs(call('LRANGE', job_key(id, 'dead'), 0, -1)) do
    if string.match(text, '^%d+') == first then piece = text end
  end
  if not piece then return { 'none' } end
  local refused = job.state == 'failed' and Tenants.are_registered() and Admission.check(job.tenant)
  if refused and args[6] ~= '1' then return refused end

  Leases.reclaim(job, now_ms)
  call('LREM', job_key(id, 'dead'), 1, piece)
  call('HDEL', job_key(id), 'dead|' .. first)
  local lo, hi = Ranges.parse(piece)
  call('RPUSH', job_key(id, 'free'), Ranges.format(lo, hi, 0, 0))
  if job.state == 'failed' then
    call('HDEL', job_key(id), 'error', 'ended', 'derive_crashes')
    call('HSET', job_key(id), 'since', decimal(now_ms))
    if refused then Admission.put_in_backlog(job) end
    Jobs.set_state(job, 'queued', now_ms)
  end
  Queues.reschedule(job, now_ms)
  Audit.log(now_ms, args[4], args[5], 'retry', id .. ' from ' .. first, job.state)
  return { 'ok', job.state }
end

register({
  { 'retry', retry, 'allow-oom' },
  { 'retry_dead', retry_dead, 'allow-oom' },
})
