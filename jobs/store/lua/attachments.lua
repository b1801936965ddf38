-- Attachments: shells in running programs. See docs/attach.md.
-- Each direction is a stream. The ID of an entry is the byte offset after its data, so an entry that is written twice
-- is stored once. Entries that the other side has read are dropped.

--- Milliseconds without a request of the principal after which an attachment ends, and for which an ended or a running
--- attachment is kept.
local ATTACHED_MS, ENDED_MS, RUNNING_MS = 30000, 60000, 2592000000
--- Maximum unread data of a stream: bytes by direction, and number of entries.
local BYTES, ENTRIES = { ['in'] = 32768, out = 131072 }, 256
--- Milliseconds without a request of the runner after which an attachment ends, while the lease exists and after it has
--- ended.
local RUNNER_MS, LEASE_MS = 15000, 4000

local function bytes_key(side, id)
  return (side == 'in' and PREFIX .. 'attachment_input:' or PREFIX .. 'attachment_output:') .. id
end

local function read_attachment(id)
  local attachment, found = { id = id }, call('HGETALL', PREFIX .. 'attachment:' .. id)
  for i = 1, #found, 2 do attachment[found[i]] = found[i + 1] end
  return attachment.state and attachment or nil
end

local function member_of(attachment)
  return attachment.tenant .. '/' .. attachment.job .. '|' .. attachment.unit .. '|' .. attachment.id
end

local function notify(id) call('XADD', PREFIX .. 'attachment_wakes', 'MAXLEN', '~', 1000, '*', 'id', id) end

-- Record a request of the principal, which extends the attachment.
local function keep_alive(attachment, now_ms)
  call('ZADD', PREFIX .. 'attachments', decimal(now_ms + ATTACHED_MS), member_of(attachment))
  -- A running attachment must survive an outage of Redis or of all coordinators, so that the audit log records its end.
  local ttl = attachment.state == 'running' and RUNNING_MS or ATTACHED_MS + ENDED_MS
  call('PEXPIRE', PREFIX .. 'attachment:' .. attachment.id, ttl)
end

local function log(attachment, now_ms, action, outcome)
  local subject = attachment.job .. '/' .. attachment.unit
  Audit.log(now_ms, attachment.tenant, attachment.owner, action, subject, outcome)
end

local function finish_attachment(attachment, now_ms, exit, reason)
  call('ZREM', PREFIX .. 'attachments', member_of(attachment))
  if attachment.state == 'ended' then return end
  call('HSET', PREFIX .. 'attachment:' .. attachment.id, 'state', 'ended', 'exit', exit, 'reason', reason)
  call('PEXPIRE', PREFIX .. 'attachment:' .. attachment.id, ENDED_MS)
  if attachment.state == 'running' then
    local seconds = decimal(math.floor(math.max(0, now_ms - (tonumber(attachment.taken) or now_ms)) / 1000))
    local outcome = seconds .. ' s, ' .. (exit ~= '' and 'exit ' .. exit or reason)
    log(attachment, now_ms, 'detach', outcome)
  end
  attachment.state, attachment.exit, attachment.reason = 'ended', exit, reason
  notify(attachment.id)
end

-- End attachments whose principals were silent for too long.
local function end_expired(now_ms)
  cap_scores(PREFIX .. 'attachments', now_ms, ATTACHED_MS)
  for _, member in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'attachments', '-inf', decimal(now_ms), 'LIMIT', 0, 100)) do
    local attachment = read_attachment(string.match(member, '[^|]*$'))
    if attachment then finish_attachment(attachment, now_ms, '', 'silent') end
    call('ZREM', PREFIX .. 'attachments', member)
  end
end

-- ATTACH id tenant job unit owner about(json) max-of-unit max-of-tenant max-of-all -> ok | other | unit | tenant | all
-- Request a shell in a running unit. The unit's runner accepts the request. `other` means that the ID belongs to
-- another principal; unit, tenant and all name the reached limit.
local function attach(args)
  local id, tenant, job, unit, owner = args[1], args[2], args[3], args[4], args[5]
  local now_ms, key, attachment = now(), PREFIX .. 'attachments', read_attachment(args[1])
  if attachment then
    local is_same = attachment.owner == owner and attachment.job == job and attachment.unit == unit
    return is_same and 'ok' or 'other'
  end
  end_expired(now_ms)
  local tenant_prefix, unit_prefix, counts = tenant .. '/', tenant .. '/' .. job .. '|' .. unit .. '|', { 0, 0, 0 }
  for _, member in ipairs(call('ZRANGE', key, 0, -1)) do
    if string.sub(member, 1, #unit_prefix) == unit_prefix then counts[1] = counts[1] + 1 end
    if string.sub(member, 1, #tenant_prefix) == tenant_prefix then counts[2] = counts[2] + 1 end
    counts[3] = counts[3] + 1
  end
  for i, what in ipairs({ 'unit', 'tenant', 'all' }) do
    if counts[i] >= tonumber(args[6 + i]) then return what end
  end
  attachment = { id = id, tenant = tenant, job = job, unit = unit, owner = owner }
  call('HSET', PREFIX .. 'attachment:' .. id, 'state', 'asked', 'tenant', tenant, 'job', job, 'unit', unit,
    'owner', owner, 'about', args[6])
  keep_alive(attachment, now_ms)
  return 'ok'
end

-- ATTACH_TAKE id job token unit -> about(json) | '': it has ended, or belongs to another unit or lease
-- Start an attachment on the runner.
local function attach_take(args)
  local attachment, now_ms = read_attachment(args[1]), now()
  local lease = Leases.read(args[2], args[3])
  local unit = tonumber(args[4])
  if not attachment or attachment.state == 'ended' or not lease then return '' end
  if attachment.job ~= args[2] or tonumber(attachment.unit) ~= unit then return '' end
  if unit < lease.lo or unit >= lease.hi then return '' end
  if attachment.state == 'running' then return attachment.lease == args[3] and attachment.about or '' end
  local key = PREFIX .. 'attachment:' .. attachment.id
  call('HSET', key, 'state', 'running', 'lease', args[3], 'taken', decimal(now_ms), 'heard', decimal(now_ms))
  call('PEXPIRE', key, RUNNING_MS)
  log(attachment, now_ms, 'attach', 'on ' .. (string.match(args[3], '^(.*)/') or ''))
  notify(attachment.id)
  return attachment.about
end

-- ATTACH_WRITE id in|out side_owner offset data stream closed size -> {state, upto} | {}: not an attachment of this
-- side
-- Append input of the principal or output of the shell at a byte offset. `upto` is the accepted offset; it is less than
-- sent if the buffer is full. `closed` is 1 if no data follows. `size` is the terminal size, or '' if unchanged.
local function attach_write(args)
  local id, side, side_owner, offset, data = args[1], args[2], args[3], tonumber(args[4]), args[5]
  local attachment, now_ms = read_attachment(id), now()
  if not attachment or side_owner ~= (side == 'in' and attachment.owner or attachment.lease) then return {} end
  local upto, read = tonumber(attachment[side .. '_end'] or 0), tonumber(attachment[side .. '_read'] or 0)
  if attachment.state == 'ended' or offset > upto then return { attachment.state, decimal(upto) } end
  local key, bytes, more, set = PREFIX .. 'attachment:' .. id, bytes_key(side, id), '', {}
  if side == 'in' then keep_alive(attachment, now_ms) else set = { 'heard', decimal(now_ms) } end
  local capacity = BYTES[side] - (upto - read)
  if call('XLEN', bytes) >= ENTRIES then capacity = 0 end
  more = string.sub(data, upto - offset + 1, upto - offset + math.max(0, capacity))
  if #more > 0 then
    upto = upto + #more
    call('XADD', bytes, decimal(upto) .. '-0', 'stream', args[6], 'data', more)
    call('PEXPIRE', bytes, ATTACHED_MS + ENDED_MS)
  end
  local whole = upto >= offset + #data
  set[#set + 1], set[#set + 2] = side .. '_end', decimal(upto)
  set[#set + 1], set[#set + 2] = side .. '_full', whole and '' or '1'
  if whole and args[7] == '1' then set[#set + 1], set[#set + 2] = side .. '_closed', '1' end
  if args[8] ~= '' then set[#set + 1], set[#set + 2] = 'size', args[8] end
  call('HSET', key, unpack(set))
  if #more > 0 or args[7] == '1' or args[8] ~= (attachment.size or '') then notify(id) end
  return { attachment.state, decimal(upto) }
end

-- ATTACH_READ id in|out side_owner after -> {state, exit, reason, size, closed, worker, upto, stream, data, ...} | {}:
-- not an attachment of this side
-- Return the data of the other side after a byte offset, and drop earlier data. Reading also counts as a sign of life:
-- an attachment ends if its principal is silent for 30 s, if its runner is silent for 15 s, or if its lease ends.
local function attach_read(args)
  local id, side, side_owner, after = args[1], args[2], args[3], tonumber(args[4])
  local attachment, now_ms = read_attachment(id), now()
  if not attachment or side_owner ~= (side == 'in' and attachment.lease or attachment.owner) then return {} end
  local key, bytes = PREFIX .. 'attachment:' .. id, bytes_key(side, id)
  if attachment.state ~= 'ended' then
    if side == 'in' then
      call('HSET', key, 'heard', decimal(now_ms))
    else
      -- If both sides were silent, Redis or all coordinators were down. Give the runner time to return.
      local seen = (tonumber(call('ZSCORE', PREFIX .. 'attachments', member_of(attachment)) or nil) or 0) - ATTACHED_MS
      if attachment.state == 'running' and now_ms - seen > LEASE_MS then
        attachment.heard = decimal(now_ms)
        call('HSET', key, 'heard', attachment.heard)
      end
      keep_alive(attachment, now_ms)
    end
    local is_heard_of = side == 'out' and attachment.state == 'running'
    local silence = is_heard_of and now_ms - (tonumber(attachment.heard) or now_ms) or 0
    local needs_lease = silence > LEASE_MS or side == 'in'
    if silence > RUNNER_MS or (needs_lease and not Leases.read(attachment.job, attachment.lease)) then
      finish_attachment(attachment, now_ms, '', side == 'in' and 'lease' or 'lost')
    end
  end
  local upto, read = tonumber(attachment[side .. '_end'] or 0), tonumber(attachment[side .. '_read'] or 0)
  if after > read and after <= upto then
    call('HSET', key, side .. '_read', decimal(after), side .. '_full', '')
    call('XTRIM', bytes, 'MINID', decimal(after + 1))
    if attachment[side .. '_full'] == '1' then notify(id) end
  end
  local worker = string.match(attachment.lease or '', '^(.*)/') or ''
  local reply = { attachment.state, attachment.exit or '', attachment.reason or '', attachment.size or '',
    attachment[side .. '_closed'] or '', worker, decimal(math.max(after, read)) }
  for _, entry in ipairs(call('XRANGE', bytes, decimal(after + 1), '+')) do
    local last, stream, data = tonumber(string.match(entry[1], '^%d+')), entry[2][2], entry[2][4]
    local seen = after - (last - #data)
    reply[#reply + 1], reply[#reply + 2] = stream, seen > 0 and string.sub(data, seen + 1) or data
    reply[7] = decimal(last)
  end
  return reply
end

-- ATTACH_END id side_owner exit reason -> 1 | 0: not an attachment of this side
-- End an attachment because its principal has left or its shell has exited.
local function attach_end(args)
  local attachment = read_attachment(args[1])
  if not attachment or (args[2] ~= attachment.owner and args[2] ~= attachment.lease) then return 0 end
  finish_attachment(attachment, now(), args[3], args[4])
  return 1
end

-- ATTACH_SWEEP -> number of live attachments
-- The leader calls this every second. End attachments whose principals have been silent for 30 s.
local function attach_sweep()
  local now_ms = now()
  end_expired(now_ms)
  return call('ZCARD', PREFIX .. 'attachments')
end

register({
  { 'attach', attach },
  { 'attach_end', attach_end, 'allow-oom' },
  { 'attach_read', attach_read, 'allow-oom' },
  { 'attach_sweep', attach_sweep, 'allow-oom' },
  { 'attach_take', attach_take },
  { 'attach_write', attach_write },
})
