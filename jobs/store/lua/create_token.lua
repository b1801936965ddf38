-- CREATE_TOKEN id tenant token ttl most name value ... -> {new} | {full} | {exists}. ttl: milliseconds, 0 for no end.
local id, tenant, token, ttl, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local t = now()
if call('EXISTS', P .. 'token:' .. id) == 1 then return { 'exists' } end
if call('ZCARD', P .. 'tokens') >= most then return { 'full' } end
call('HSET', P .. 'token:' .. id, 'created', num(t), 'expires', num(ttl > 0 and t + ttl or 0), 'used', 0, unpack(ARGV, 6))
call('ZADD', P .. 'tokens', num(t), id)
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
log_change(t, tenant, token, 'create token', id, 'ok')
return { 'new' }
