-- TENANT_REMOVE name tenant token -> ok | missing | default | busy. Only a tenant none of whose jobs waits or runs.
local name = ARGV[1]
if call('ZSCORE', P .. 'tenants', name) == false then return 'missing' end
if name == 'default' then return 'default' end
if by_tenant() then T.recount(name) end
if call('EXISTS', P .. 'admitted:' .. name) == 1 or call('EXISTS', P .. 'backlog:' .. name) == 1 then return 'busy' end
call('ZREM', P .. 'tenants', name)
call('HDEL', P .. 'shares', name)
call('DEL', P .. 'lanes:' .. name)
call('SREM', P .. 'capped', name)
for _, class in ipairs({ 'interactive', 'high', 'normal', 'low' }) do call('HDEL', P .. 'finish:' .. class, name) end
log_change(now(), ARGV[2], ARGV[3], 'tenant', name, 'removed')
return 'ok'
