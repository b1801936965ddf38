-- LOG_REBASE seq hash void seen -> 1 | 0. The leader: Redis lost writes, and AUDIT_FILE, which ends with the entry `seq`, is
-- ahead of it. The log goes on from there: an entry `rollback` names void..seq, the entries that Redis forgot, and those
-- that it has written since, numbered from `void`, follow. 0: `seen` is no longer the hash of the head.
local seq, hash, void, seen = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
even_if_full()
local _, latest = log_head()
if latest ~= seen then return 0 end
local stream, head = P .. 'auditlog', P .. 'audithead'
local since = call('XRANGE', stream, num(void) .. '-0', '+')
call('DEL', stream)
call('HSET', head, 'dropped_seq', num(seq), 'dropped_hash', hash, 'exported', num(seq))
seq, hash = log_line(seq, hash, log_body(now(), '', '', 'rollback', num(void) .. '-' .. num(seq), 'void'))
for _, entry in ipairs(since) do seq, hash = log_line(seq, hash, entry[2][4]) end
return 1
