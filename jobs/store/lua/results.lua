-- Results: merging of partials, and the end of a job.

-- Return a digest of the accumulator and the first `parts` partials, like GatheredPartials.digest. A counter is not
-- enough: after lost writes, it would count the same numbers for other partials.
function Results.digest(id, parts)
  local sums = { redis.sha1hex(call('GET', job_key(id, 'acc')) or '') }
  if parts > 0 then
    for _, part in ipairs(call('LRANGE', job_key(id, 'parts'), 0, decimal(parts - 1))) do
      sums[#sums + 1] = redis.sha1hex(part)
    end
  end
  return redis.sha1hex(table.concat(sums))
end

-- Store the marks (proven facts) of a finished job: a JSON list of {mark, range, payload}. The integers of a range can
-- have any size and are not parsed.
function Results.keep_marks(text)
  for _, mark in ipairs(cjson.decode(text)) do call('HSET', PREFIX .. 'mark:' .. mark[1], mark[2], mark[3]) end
end

-- GATHER id start limit bytes -> {done, spec, accumulator, more, part ...}
-- Return partials from `start` on, and the accumulator if `start` is 0: at most `limit` partials, and at least one, but
-- no more than fit into `bytes`. `more` is 1 if partials within `limit` were omitted.
local function gather(args)
  local id, start, limit, left = args[1], tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  local known = call('HMGET', job_key(id), 'done', 'spec')
  local accumulator = start == 0 and call('GET', job_key(id, 'acc'))
  local reply = { known[1] or '0', known[2], accumulator, 0 }
  left = left - #(accumulator or '')
  for at = start, start + limit - 1 do
    local part = call('LINDEX', job_key(id, 'parts'), decimal(at))
    if not part then break end
    left = left - #part
    if left < 0 and at > start then
      reply[4] = 1
      break
    end
    reply[#reply + 1] = part
  end
  return reply
end

-- FOLD id digest parts accumulator -> 1 | 0
-- Replace the accumulator and its first `parts` partials, at least one, by the accumulator into which they were merged.
local function fold(args)
  local id, seen, parts, accumulator = args[1], args[2], tonumber(args[3]), args[4]
  -- A caller that names more partials than exist has read none; the digest of no partials is public.
  if parts < 1 or call('LLEN', job_key(id, 'parts')) < parts or Results.digest(id, parts) ~= seen then return 0 end
  call('LTRIM', job_key(id, 'parts'), decimal(parts), -1)
  call('SET', job_key(id, 'acc'), accumulator)
  return 1
end

-- FINISH id digest result marks -> 1 | 0
-- Finish a job in `finishing` that has this accumulator and no other partials.
local function finish(args)
  local id, seen, result, marks = args[1], args[2], args[3], args[4]
  local now_ms = now()
  local job = Jobs.find(id)
  if not job or job.state ~= 'finishing' then return 0 end
  if call('LLEN', job_key(id, 'parts')) > 0 or Results.digest(id, 0) ~= seen then return 0 end
  call('SET', job_key(id, 'result'), result)
  Results.keep_marks(marks)
  Queues.remove(job)
  Jobs.set_state(job, 'done', now_ms)
  if not Programs.is_program(job) then call('DEL', job_key(id, 'acc')) end -- it has records of units
  return 1
end

-- ABORT id error -> 1 | 0
-- Fail a finishing job whose result cannot be derived. RETRY tries again.
local function abort(args)
  local id, text = args[1], args[2]
  local now_ms = now()
  local job = Jobs.find(id)
  if not job or job.state ~= 'finishing' then return 0 end
  call('HSET', job_key(id), 'error', text)
  Queues.remove(job)
  Jobs.set_state(job, 'failed', now_ms, 'error', text)
  return 1
end

-- COUNT_DERIVE_CRASH id token error -> 1 failed | 0
-- Count a lane that died while it derived the result. The job fails after too many deaths.
local function count_derive_crash(args)
  local id, token, text = args[1], args[2], args[3]
  local now_ms = now()
  local job = Jobs.find(id)
  if not job or job.state ~= 'finishing' then return 0 end
  if call('HSETNX', job_key(id), 'derive_crash|' .. token, 1) == 0 then return 0 end
  if call('HINCRBY', job_key(id), 'derive_crashes', 1) <= SETTINGS.max_expiries then return 0 end
  call('HSET', job_key(id), 'error', text)
  Queues.remove(job)
  Jobs.set_state(job, 'failed', now_ms, 'error', text)
  return 1
end

register({
  { 'abort', abort, 'allow-oom' },
  { 'finish', finish, 'allow-oom' },
  { 'fold', fold, 'allow-oom' },
  { 'gather', gather, 'no-writes' },
  { 'count_derive_crash', count_derive_crash, 'allow-oom' },
})
