-- ATTACH_READ id in|out who after -> {state, exit, reason, size, closed, worker, upto, stream, data, ...} | {}: no such
-- attachment of theirs. What the other side wrote after a place; what is before it is dropped. Who reads is alive: an asker
-- that is not heard for 30 s, or a runner for 15 s, ends it, as does the end of the lease.
local RUNNER_MS, LEASE_MS = 15000, 4000
local id, side, who, after = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local a, t = attached(id), now()
if not a or who ~= (side == 'in' and a.lease or a.owner) then return {} end
even_if_full()
local k, bytes = P .. 'attachment:' .. id, attached_bytes(side, id)
if a.state ~= 'ended' then
  if side == 'in' then
    call('HSET', k, 'heard', num(t))
  else
    -- Where neither was heard, Redis or all coordinators were away: its runner has time to come back.
    local seen = (tonumber(call('ZSCORE', P .. 'attachments', attachment_member(a)) or nil) or 0) - ATTACHED_MS
    if a.state == 'running' and t - seen > LEASE_MS then
      a.heard = num(t)
      call('HSET', k, 'heard', a.heard)
    end
    keep_attached(a, t)
  end
  local silence = side == 'out' and a.state == 'running' and t - (tonumber(a.heard) or t) or 0
  if silence > RUNNER_MS or ((silence > LEASE_MS or side == 'in') and not lease_of(a.job, a.lease)) then
    end_attached(a, t, '', side == 'in' and 'lease' or 'lost')
  end
end
local upto, read = tonumber(a[side .. '_end'] or 0), tonumber(a[side .. '_read'] or 0)
if after > read and after <= upto then
  call('HSET', k, side .. '_read', num(after), side .. '_full', '')
  call('XTRIM', bytes, 'MINID', num(after + 1))
  if a[side .. '_full'] == '1' then wake_attached(id) end
end
local reply = { a.state, a.exit or '', a.reason or '', a.size or '', a[side .. '_closed'] or '',
  string.match(a.lease or '', '^(.*)/') or '', num(math.max(after, read)) }
for _, entry in ipairs(call('XRANGE', bytes, num(after + 1), '+')) do
  local last, stream, data = tonumber(string.match(entry[1], '^%d+')), entry[2][2], entry[2][4]
  local seen = after - (last - #data)
  reply[#reply + 1], reply[#reply + 2] = stream, seen > 0 and string.sub(data, seen + 1) or data
  reply[7] = num(last)
end
return reply
