-- Audit log. See docs/audit.md.
-- Each change appends one entry in the same function call. Entries form a hash chain. The line of an entry is
-- {"seq":N,BODY,"hash":"H"}, where H is the SHA-1 of the previous hash and {"seq":N,BODY}.
local function read_head()
  local head = call('HMGET', PREFIX .. 'audithead', 'seq', 'hash')
  if tonumber(head[1]) and head[2] then return tonumber(head[1]), head[2] end
  local last = call('XREVRANGE', PREFIX .. 'auditlog', '+', '-', 'COUNT', 1)[1]
  if last then return tonumber(string.match(last[1], '^%d+')), last[2][2] end
  return 0, string.rep('0', 40)
end

local function quote(text) return string.find(text, '^[%w_-]*$') and '"' .. text .. '"' or cjson.encode(text) end

local function format_body(now_ms, tenant, token, action, subject, outcome, count)
  return '"t":' .. decimal(now_ms) .. ',"tenant":' .. quote(tenant) .. ',"token":' .. quote(token) ..
    ',"action":"' .. action .. '","subject":' .. quote(subject) .. ',"outcome":' .. quote(outcome) ..
    (count and ',"count":' .. decimal(count) or '')
end

local function append(seq, hash, body)
  local text = decimal(seq + 1)
  hash = redis.sha1hex(hash .. '{"seq":' .. text .. ',' .. body .. '}')
  call('XADD', PREFIX .. 'auditlog', text .. '-0', 'hash', hash, 'body', body)
  call('HSET', PREFIX .. 'audithead', 'seq', text, 'hash', hash)
  return seq + 1, hash
end

-- Append an entry to the audit log.
function Audit.log(now_ms, tenant, token, action, subject, outcome, count)
  local seq, hash = read_head()
  append(seq, hash, format_body(now_ms, tenant, token, action, subject, outcome, count))
end

-- LOG_DENIED calls(json) -> 1
-- Append one entry for each {tenant, token, source, reason, count}.
local function log_denied(args)
  local now_ms = now()
  for _, denied in ipairs(cjson.decode(args[1])) do
    local tenant, token, source, reason, count = unpack(denied)
    Audit.log(now_ms, tenant, token, 'denied', source, reason, count)
  end
  return 1
end

-- LOG_DISCLOSURE action subject tenant token -> 1
-- Append an entry about a disclosed secret.
local function log_disclosure(args)
  local now_ms = now()
  Audit.log(now_ms, args[3], args[4], args[1], args[2], 'ok')
  return 1
end

-- LOG_TRIM keep slack exported -> number of dropped entries
-- Called by the leader. If there are more than keep + slack entries, drop all but the last `keep`. `exported` is the
-- number of the last entry in AUDIT_FILE, and no later entry is dropped; '' without such a file.
local function log_trim(args)
  local keep, slack, exported = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local stream, head = PREFIX .. 'auditlog', PREFIX .. 'audithead'
  if exported then call('HSET', head, 'exported', decimal(exported)) end
  local length = call('XLEN', stream)
  if length <= keep + slack then return 0 end
  local last = math.min((read_head()) - keep, exported or math.huge)
  local entry = call('XREVRANGE', stream, decimal(math.max(last, 0)) .. '-0', '-', 'COUNT', 1)[1]
  if not entry then return 0 end
  local first = string.match(call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1], '^%d+')
  local dropped = string.match(entry[1], '^%d+')
  call('XTRIM', stream, 'MINID', '=', decimal(dropped + 1) .. '-0')
  call('HSET', head, 'dropped_seq', dropped, 'dropped_hash', entry[2][2])
  local safe = tonumber(call('HGET', head, 'exported') or 0) or 0
  if tonumber(dropped) > safe then
    Audit.log(now(), '', '', 'trimmed', decimal(math.max(tonumber(first), safe + 1)) .. '-' .. dropped, 'dropped')
  end
  return length - call('XLEN', stream)
end

-- LOG_REBASE seq hash void seen -> 1 | 0: `seen` is no longer the hash of the last entry
-- Called by the leader after Redis has lost writes, if AUDIT_FILE, whose last entry is `seq`, has more entries.
-- Continue the log after that entry. First append an entry `rollback` that names void..seq, the lost entries. Then
-- append the entries that Redis has written since then, which had numbers from `void` on.
local function log_rebase(args)
  local seq, hash, void, seen = tonumber(args[1]), args[2], tonumber(args[3]), args[4]
  local _, latest = read_head()
  if latest ~= seen then return 0 end
  local stream, head = PREFIX .. 'auditlog', PREFIX .. 'audithead'
  local since = call('XRANGE', stream, decimal(void) .. '-0', '+')
  call('DEL', stream)
  call('HSET', head, 'dropped_seq', decimal(seq), 'dropped_hash', hash, 'exported', decimal(seq))
  seq, hash = append(seq, hash, format_body(now(), '', '', 'rollback', decimal(void) .. '-' .. decimal(seq), 'void'))
  for _, entry in ipairs(since) do seq, hash = append(seq, hash, entry[2][4]) end
  return 1
end

register({
  { 'log_denied', log_denied, 'allow-oom' },
  { 'log_rebase', log_rebase, 'allow-oom' },
  { 'log_disclosure', log_disclosure },
  { 'log_trim', log_trim, 'allow-oom' },
})
