-- CREATE_TOKEN id ttl most name value ... -> {new} | {full} | {exists}. ttl: milliseconds, 0 for no end.
local id, ttl, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local t = now()
if call('EXISTS', P .. 'token:' .. id) == 1 then return { 'exists' } end
if call('ZCARD', P .. 'tokens') >= most then return { 'full' } end
call('HSET', P .. 'token:' .. id, 'created', num(t), 'expires', num(ttl > 0 and t + ttl or 0), 'used', 0, unpack(ARGV, 4))
call('ZADD', P .. 'tokens', num(t), id)
call('INCR', P .. 'tokenset')
return { 'new' }
