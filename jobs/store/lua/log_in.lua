-- LOG_IN id tenant token ttl most name value ...: a session of a browser. Those that have ended leave the index, and beyond `most` the oldest.
local id, tenant, token, ttl, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local t = now()
call('ZREMRANGEBYSCORE', P .. 'sessions', '-inf', num(t))
for _, old in ipairs(call('ZRANGE', P .. 'sessions', 0, -most - 1)) do
  call('DEL', P .. 'session:' .. old)
  call('ZREM', P .. 'sessions', old)
end
call('HSET', P .. 'session:' .. id, 'expires', num(t + ttl), unpack(ARGV, 6))
call('PEXPIRE', P .. 'session:' .. id, num(ttl))
call('ZADD', P .. 'sessions', num(t + ttl), id)
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
log_change(t, tenant, token, 'log in', id, 'ok')
return 1
