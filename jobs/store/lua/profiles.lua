-- Profiles. See docs/profiles.md. ct:profiling has the active profiles as state|hz|until|hosts, for workers.

--- Size of a part of a recording in bytes.
local PROFILE_PART = 8388608

local function change_state(id, state)
  call('HSET', PREFIX .. 'profile:' .. id, 'state', state)
  if state == 'done' then
    call('HDEL', PREFIX .. 'profiling', id)
    call('DEL', PREFIX .. 'profile_claims:' .. id)
    return
  end
  local known = call('HMGET', PREFIX .. 'profile:' .. id, 'hz', 'until', 'hosts')
  call('HSET', PREFIX .. 'profiling', id, table.concat({ state, known[1], known[2], known[3] }, '|'))
end

local function drop_parts(id)
  for _, field in ipairs(call('HKEYS', PREFIX .. 'profile_parts')) do
    if string.match(field, '^(.-)|') == id then call('HDEL', PREFIX .. 'profile_parts', field) end
  end
end

function Profiles.drop(id)
  drop_parts(id)
  call('HDEL', PREFIX .. 'profiling', id)
  call('DEL', PREFIX .. 'profile:' .. id, PREFIX .. 'profile_claims:' .. id, PREFIX .. 'profile_recordings:' .. id)
end

-- START_PROFILE id live mine most caller token field value ... -> {new, id} | {exists, name} | {full, most} | {live,
-- most} | {own, mine} | {missing, tenant}
-- `live` and `mine` are the limits of active profiles in the cluster and per tenant; `most` is the limit of all
-- profiles per tenant.
local function start_profile(args)
  local id, fields = args[1], {}
  for i = 7, #args, 2 do fields[args[i]] = args[i + 1] end
  local tenant, now_ms = fields.tenant, now()
  local names = PREFIX .. 'profiles:' .. tenant
  if tenant ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', tenant) then return { 'missing', tenant } end
  local known = call('HGET', names, fields.name)
  if known == id then return { 'new', id } end
  if known then return { 'exists', fields.name } end
  if call('HLEN', names) >= tonumber(args[4]) then return { 'full', args[4] } end
  local live, own_count = call('HKEYS', PREFIX .. 'profiling'), 0
  if #live >= tonumber(args[2]) then return { 'live', args[2] } end
  for _, other in ipairs(live) do
    if call('HGET', PREFIX .. 'profile:' .. other, 'tenant') == tenant then own_count = own_count + 1 end
  end
  if own_count >= tonumber(args[3]) then return { 'own', args[3] } end
  local until_ms = decimal(now_ms + fields.seconds * 1000)
  call('HSET', PREFIX .. 'profile:' .. id, 'created', decimal(now_ms), 'until', until_ms, unpack(args, 7))
  call('HSET', names, fields.name, id)
  change_state(id, 'recording')
  Audit.log(now_ms, args[5], args[6], 'start profile', tenant .. '/' .. fields.name, 'ok')
  return { 'new', id }
end

-- COLLECT_PROFILE id from caller token action most -> 1 / 0: its state is not `from` / -1: it was done, and `most`
-- others are active
-- Start collecting the recordings.
local function collect_profile(args)
  local id, now_ms = args[1], now()
  local key = PREFIX .. 'profile:' .. id
  local known = call('HMGET', key, 'state', 'tenant', 'name')
  if known[1] ~= args[2] then return 0 end
  if known[1] == 'done' and call('HLEN', PREFIX .. 'profiling') >= tonumber(args[6]) then return -1 end
  call('HSET', key, 'collecting', decimal(now_ms))
  if known[1] == 'recording' then call('HSET', key, 'ended', decimal(now_ms)) end
  change_state(id, 'collecting')
  Audit.log(now_ms, args[3], args[4], args[5], known[2] .. '/' .. known[3], 'ok')
  return 1
end

-- END_PROFILE id artifact -> 1 / 0: it is not collecting
-- `artifact` is the ID of the artifact with the recordings, or ''.
local function end_profile(args)
  local id = args[1]
  if call('HGET', PREFIX .. 'profile:' .. id, 'state') ~= 'collecting' then return 0 end
  call('HSET', PREFIX .. 'profile:' .. id, 'artifact', args[2], 'trouble', '')
  change_state(id, 'done')
  drop_parts(id)
  return 1
end

-- DELETE_PROFILE tenant name caller token -> {id, artifact} / {}: it does not exist
local function delete_profile(args)
  local tenant, name = args[1], args[2]
  local id = call('HGET', PREFIX .. 'profiles:' .. tenant, name)
  if not id then return {} end
  local artifact = call('HGET', PREFIX .. 'profile:' .. id, 'artifact') or ''
  call('HDEL', PREFIX .. 'profiles:' .. tenant, name)
  Profiles.drop(id)
  Audit.log(now(), args[3], args[4], 'delete profile', tenant .. '/' .. name, 'ok')
  return { id, artifact }
end

-- REPORT_PROFILE id worker ttl silent most devices device ... {recording row size sha256} ... -> {state, now, {device
-- ...}, {{recording, next} ...}}
-- Claim devices for `ttl` ms while the profile is recording, and return the devices that this worker has. `next` is,
-- for each recording, the number of the part to send, or wait, kept, lost, other (another worker reported this
-- recording within `silent` ms) or full (there are `most` recordings).
local function report_profile(args)
  local id, worker, ttl, silent, most = args[1], args[2], tonumber(args[3]), tonumber(args[4]), tonumber(args[5])
  local key, claims = PREFIX .. 'profile:' .. id, PREFIX .. 'profile_claims:' .. id
  local recordings = PREFIX .. 'profile_recordings:' .. id
  local now_ms, first = now(), 7 + args[6]
  local state = call('HGET', key, 'state')
  if not state then return { 'gone', decimal(now_ms), {}, {} } end
  local claimed, replies = {}, {}
  if state == 'recording' then
    for i = 7, first - 1 do
      local by, until_ms = string.match(call('HGET', claims, args[i]) or '', '^(.*)|(%d+)$')
      -- If the clock was set back, a claim must still not last longer than `ttl`.
      if not by or by == worker or tonumber(until_ms) <= now_ms or tonumber(until_ms) > now_ms + ttl then
        call('HSET', claims, args[i], worker .. '|' .. decimal(now_ms + ttl))
        claimed[#claimed + 1] = args[i]
      end
    end
  end
  for i = first, #args, 4 do
    local recording, size = args[i], tonumber(args[i + 2])
    local known = call('HMGET', recordings, recording .. '|by', recording .. '|at', recording .. '|end',
      recording .. '|sha', recording .. '|parts')
    local next_part = 'wait'
    if known[3] then
      next_part = known[3]
    elseif known[1] and known[1] ~= worker and math.abs(now_ms - (tonumber(known[2]) or 0)) < silent then
      next_part = 'other'
    elseif not known[1] and call('HLEN', recordings) >= 5 * most then
      next_part = 'full'
    else
      call('HSET', recordings, recording, args[i + 1], recording .. '|by', worker, recording .. '|at', decimal(now_ms))
      if size > 0 then
        if state == 'done' then
          state = 'collecting'
          call('HSET', key, 'collecting', decimal(now_ms))
          change_state(id, state)
        end
        if known[4] ~= args[i + 3] then
          call('HSET', recordings, recording .. '|sha', args[i + 3], recording .. '|size', decimal(size),
            recording .. '|parts', '')
          known[5] = ''
        end
        for number = 0, math.ceil(size / PROFILE_PART) - 1 do
          if not string.find(known[5] or '', ',' .. decimal(number) .. ',', 1, true) then
            if call('HEXISTS', PREFIX .. 'profile_parts', id .. '|' .. recording .. '|' .. decimal(number)) == 0 then
              next_part = decimal(number)
              break
            end
          end
        end
      end
    end
    replies[#replies + 1] = { recording, next_part }
  end
  return { state, decimal(now_ms), claimed, replies }
end

-- ADD_PROFILE_PART id worker recording number most all bytes -> stored | gone | wait: `most` parts of the profile, or
-- `all` parts, are stored | size: the part's length contradicts the recording's size
local function add_profile_part(args)
  local id, worker, recording, number = args[1], args[2], args[3], tonumber(args[4])
  local recordings = PREFIX .. 'profile_recordings:' .. id
  local known = call('HMGET', recordings, recording .. '|by', recording .. '|size', recording .. '|end')
  local size = tonumber(known[2])
  if call('HGET', PREFIX .. 'profile:' .. id, 'state') ~= 'collecting' then return 'gone' end
  if known[1] ~= worker or known[3] or not size then return 'gone' end
  if #args[7] ~= math.min(PROFILE_PART, size - number * PROFILE_PART) then return 'size' end
  local own_count, others = 0, call('HKEYS', PREFIX .. 'profile_parts')
  local field = id .. '|' .. recording .. '|' .. decimal(number)
  for _, other in ipairs(others) do
    if other == field then return 'stored' end
    if string.match(other, '^(.-)|') == id then own_count = own_count + 1 end
  end
  if own_count >= tonumber(args[5]) or #others >= tonumber(args[6]) then return 'wait' end
  call('HSET', PREFIX .. 'profile_parts', field, args[7])
  return 'stored'
end

-- KEEP_PROFILE_PART id recording number sha256 -> 1 / 0: it must be sent again
-- Record that the leader has stored the part.
local function keep_profile_part(args)
  local id, recording, number = args[1], args[2], args[3]
  local recordings = PREFIX .. 'profile_recordings:' .. id
  local known = call('HMGET', recordings, recording .. '|sha', recording .. '|parts', recording .. '|size')
  call('HDEL', PREFIX .. 'profile_parts', id .. '|' .. recording .. '|' .. number)
  if known[1] ~= args[4] or not known[3] then return 0 end
  local parts = known[2] or ''
  if not string.find(parts, ',' .. number .. ',', 1, true) then
    call('HSET', recordings, recording .. '|parts', parts .. ',' .. number .. ',')
  end
  return 1
end

-- SETTLE_RECORDING id recording how sha256 most -> kept | lost | again
-- `kept` means that the file is complete. `again` means that its bytes do not match its SHA-256, so it must be sent
-- again; after `most` attempts it is lost.
local function settle_recording(args)
  local recordings, recording, how = PREFIX .. 'profile_recordings:' .. args[1], args[2], args[3]
  if call('HGET', recordings, recording .. '|sha') ~= args[4] then return 'again' end
  if how == 'again' and call('HINCRBY', recordings, recording .. '|tries', 1) >= tonumber(args[5]) then how = 'lost' end
  if how == 'again' then
    call('HSET', recordings, recording .. '|parts', '', recording .. '|sha', '')
  else
    call('HSET', recordings, recording .. '|end', how)
  end
  return how
end

register({
  { 'add_profile_part', add_profile_part },
  { 'collect_profile', collect_profile, 'allow-oom' },
  { 'delete_profile', delete_profile, 'allow-oom' },
  { 'end_profile', end_profile, 'allow-oom' },
  { 'keep_profile_part', keep_profile_part, 'allow-oom' },
  { 'report_profile', report_profile },
  { 'settle_recording', settle_recording, 'allow-oom' },
  { 'start_profile', start_profile },
})
