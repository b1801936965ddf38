-- SET_SECRET of name key sealed most tenant token -> new | changed | full | missing: of names a tenant that is not registered.
local of, name, key_id, sealed, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return 'missing' end
local t = now()
local new = call('HEXISTS', P .. 'secrets:' .. of, name) == 0
if new and call('HLEN', P .. 'secrets:' .. of) >= most then return 'full' end
call('HSET', P .. 'secrets:' .. of, name, key_id .. '|' .. num(t))
call('HSET', P .. 'secret:' .. of, name, sealed)
log_change(t, ARGV[6], ARGV[7], 'set secret', of .. '/' .. name, new and 'new' or 'changed')
return new and 'new' or 'changed'
