-- CREATE_TOKEN id tenant token ttl most of name value ... -> {new} | {full} | {exists} | {missing}: its tenant is not registered. ttl: milliseconds, 0 for no end.
local id, tenant, token, ttl, most, of = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local t = now()
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing' } end
if call('EXISTS', P .. 'token:' .. id) == 1 then return { 'exists' } end
if call('ZCARD', P .. 'tokens') >= most then return { 'full' } end
call('HSET', P .. 'token:' .. id, 'created', num(t), 'expires', num(ttl > 0 and t + ttl or 0), 'used', 0, 'tenant', of, unpack(ARGV, 7))
call('ZADD', P .. 'tokens', num(t), id)
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
log_change(t, tenant, token, 'create token', id, 'ok')
return { 'new' }
