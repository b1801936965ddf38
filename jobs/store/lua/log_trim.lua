-- LOG_TRIM keep slack exported -> entries dropped. The leader: drops entries of the audit log beyond the last `keep`, once
-- there are `slack` more. exported: number of the last entry in AUDIT_FILE, beyond which none is dropped; '' without a file.
local keep, slack, exported = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
even_if_full()
local stream, head = P .. 'auditlog', P .. 'audithead'
if exported then call('HSET', head, 'exported', num(exported)) end
local length = call('XLEN', stream)
if length <= keep + slack then return 0 end
local last = math.min((log_head()) - keep, exported or math.huge)
local entry = call('XREVRANGE', stream, num(math.max(last, 0)) .. '-0', '-', 'COUNT', 1)[1]
if not entry then return 0 end
local first = string.match(call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1], '^%d+')
local dropped = string.match(entry[1], '^%d+')
call('XTRIM', stream, 'MINID', '=', num(dropped + 1) .. '-0')
call('HSET', head, 'dropped_seq', dropped, 'dropped_hash', entry[2][2])
local safe = tonumber(call('HGET', head, 'exported') or 0) or 0
if tonumber(dropped) > safe then
  log_change(now(), '', '', 'trimmed', num(math.max(tonumber(first), safe + 1)) .. '-' .. dropped, 'dropped')
end
return length - call('XLEN', stream)
