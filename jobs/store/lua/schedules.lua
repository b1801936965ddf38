-- Schedules. See docs/schedules.md.

-- ADD_SCHEDULE id most tenant token field value ... -> {new, id} | {exists, name} | {full, most} | {missing, tenant} |
-- {artifact, id}
local function add_schedule(args)
  local id, most, fields = args[1], tonumber(args[2]), {}
  for i = 5, #args, 2 do fields[args[i]] = args[i + 1] end
  local tenant = fields.tenant
  local names = PREFIX .. 'schedules:' .. tenant
  if tenant ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', tenant) then return { 'missing', tenant } end
  local known = call('HGET', names, fields.name)
  if known == id then return { 'new', id } end
  if known then return { 'exists', fields.name } end
  if call('HLEN', names) >= most then return { 'full', decimal(most) } end
  local holder_keys = {}
  for artifact in string.gmatch(fields.artifacts, '[^,]+') do
    local holders = PREFIX .. 'holders:' .. tenant .. ':' .. artifact
    if call('EXISTS', holders) == 0 then return { 'artifact', artifact } end
    holder_keys[#holder_keys + 1] = holders
  end
  local now_ms = now()
  call('HSET', PREFIX .. 'schedule:' .. id, unpack(args, 5))
  call('HSET', names, fields.name, id)
  call('ZADD', PREFIX .. 'schedules', fields.next .. '000', id)
  for _, holders in ipairs(holder_keys) do call('SADD', holders, 'schedule:' .. id) end
  Audit.log(now_ms, args[3], args[4], 'add schedule', tenant .. '/' .. fields.name, 'ok')
  return { 'new', id }
end

-- END_SCHEDULE tenant name caller token -> 1 / 0: it does not exist
-- Delete a schedule and release the artifacts of its job.
local function end_schedule(args)
  local tenant, name, now_ms = args[1], args[2], now()
  local id = call('HGET', PREFIX .. 'schedules:' .. tenant, name)
  if not id then return 0 end
  local artifacts = call('HGET', PREFIX .. 'schedule:' .. id, 'artifacts') or ''
  call('HDEL', PREFIX .. 'schedules:' .. tenant, name)
  call('ZREM', PREFIX .. 'schedules', id)
  call('DEL', PREFIX .. 'schedule:' .. id)
  for artifact in string.gmatch(artifacts, '[^,]+') do
    Artifacts.release(tenant, artifact, 'schedule:' .. id, now_ms)
  end
  Audit.log(now_ms, args[3], args[4], 'delete schedule', tenant .. '/' .. name, 'ok')
  return 1
end

-- ADVANCE_SCHEDULE tenant name next caller token -> 1 / 0: it does not exist
-- Pause a schedule if `next` is 0, otherwise resume it at that time.
local function advance_schedule(args)
  local tenant, name, next_run, now_ms = args[1], args[2], args[3], now()
  local id = call('HGET', PREFIX .. 'schedules:' .. tenant, name)
  if not id then return 0 end
  local key, on = PREFIX .. 'schedule:' .. id, next_run ~= '0'
  local was_paused = call('HGET', key, 'paused') == '1'
  if was_paused ~= on then return 1 end
  call('HSET', key, 'paused', on and 0 or 1, 'next', next_run)
  call('HDEL', key, 'firing')
  if on then
    call('ZADD', PREFIX .. 'schedules', next_run .. '000', id)
  else
    call('ZREM', PREFIX .. 'schedules', id)
  end
  Audit.log(now_ms, args[4], args[5], on and 'resume schedule' or 'pause schedule', tenant .. '/' .. name, 'ok')
  return 1
end

-- DUE_SCHEDULES most without -> {now in seconds, {id, field, value ...} ...}
-- Return due schedules, most overdue first, without the first `without`.
local function due_schedules(args)
  local now_ms = now()
  local found = { decimal(math.floor(now_ms / 1000)) }
  local limit = { 'LIMIT', args[2] or 0, args[1] }
  for _, id in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'schedules', '-inf', decimal(now_ms), unpack(limit))) do
    local fields = call('HGETALL', PREFIX .. 'schedule:' .. id)
    if #fields == 0 then
      call('ZREM', PREFIX .. 'schedules', id)
    else
      found[#found + 1] = { id, unpack(fields) }
    end
  end
  return found
end

-- CLAIM_RUN id next firing following missed -> 1 / 0: it was paused, deleted or advanced by another caller
-- `firing` is the run to claim, 0 for none. The schedule stays due until NOTE_RUN. `following` is the time of the next
-- run, 0 for none.
local function claim_run(args)
  local id, firing, next_run = args[1], args[3], args[4]
  local key = PREFIX .. 'schedule:' .. id
  local known = call('HMGET', key, 'next', 'firing', 'paused')
  if known[1] ~= args[2] or known[2] or known[3] == '1' then return 0 end
  call('HSET', key, 'next', next_run)
  if args[5] ~= '0' then call('HINCRBY', key, 'missed', args[5]) end
  if firing ~= '0' then
    call('HSET', key, 'firing', firing)
  elseif next_run == '0' then
    call('ZREM', PREFIX .. 'schedules', id)
  else
    call('ZADD', PREFIX .. 'schedules', next_run .. '000', id)
  end
  return 1
end

-- NOTE_RUN id firing outcome job said -> 1 / 0: that run is not claimed
local function note_run(args)
  local id, firing, outcome, job, message = args[1], args[2], args[3], args[4], args[5]
  local key = PREFIX .. 'schedule:' .. id
  local known = call('HMGET', key, 'firing', 'next', 'name', 'paused')
  if not known[3] or known[1] ~= firing then return 0 end
  call('HSET', key, 'said', message, 'last', firing)
  if job ~= '' then call('HSET', key, 'last_job', job) end
  call('HINCRBY', key, outcome, 1)
  call('HDEL', key, 'firing')
  if known[2] == '0' or known[4] == '1' then
    call('ZREM', PREFIX .. 'schedules', id)
  else
    call('ZADD', PREFIX .. 'schedules', known[2] .. '000', id)
  end
  return 1
end

-- CLAIM_BY_HAND id run lease -> ok | same: that run was already submitted | busy: another run is being submitted
-- Claim a manual run for `lease` ms, until NOTE_BY_HAND.
local function claim_by_hand(args)
  local id, run, now_ms = args[1], args[2], now()
  local key = PREFIX .. 'schedule:' .. id
  local other, until_ms = string.match(call('HGET', key, 'hand') or '', '^(.*)|(%d+)$')
  if other == run and until_ms == '0' then return 'same' end
  if call('EXISTS', key) == 0 then return 'ok' end -- it was deleted meanwhile
  if other and tonumber(until_ms) > now_ms and tonumber(until_ms) <= now_ms + args[3] then return 'busy' end
  call('HSET', key, 'hand', run .. '|' .. decimal(now_ms + args[3]))
  return 'ok'
end

-- NOTE_BY_HAND id run job -> 1 / 0: it was already recorded, or was not claimed
-- `job` is the job that the run submitted, or ''.
local function note_by_hand(args)
  local id, run, job = args[1], args[2], args[3]
  local key = PREFIX .. 'schedule:' .. id
  local other, until_ms = string.match(call('HGET', key, 'hand') or '', '^(.*)|(%d+)$')
  if other ~= run or until_ms == '0' then return 0 end
  if job == '' then
    call('HDEL', key, 'hand')
    return 1
  end
  local seconds = decimal(math.floor(now() / 1000))
  call('HSET', key, 'hand', run .. '|0', 'last', seconds, 'last_job', job, 'said', 'submitted by hand')
  call('HINCRBY', key, 'submitted', 1)
  return 1
end

register({
  { 'add_schedule', add_schedule },
  { 'claim_by_hand', claim_by_hand },
  { 'claim_run', claim_run },
  { 'due_schedules', due_schedules, 'allow-oom' },
  { 'end_schedule', end_schedule, 'allow-oom' },
  { 'note_by_hand', note_by_hand, 'allow-oom' },
  { 'note_run', note_run, 'allow-oom' },
  { 'advance_schedule', advance_schedule, 'allow-oom' },
})
