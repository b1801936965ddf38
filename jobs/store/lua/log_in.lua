-- LOG_IN id tenant token ttl most most_of_token name value ...: a session of a browser. Those that have ended leave the indexes; beyond `most_of_token` the oldest of its token ends, beyond `most` the oldest of all.
local id, tenant, token, ttl, most, of_token = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local t = now()

local function make_room(index, room)
  call('ZREMRANGEBYSCORE', index, '-inf', num(t))
  for _, old in ipairs(call('ZRANGE', index, 0, -room)) do
    call('ZREM', P .. 'logins:' .. (call('HGET', P .. 'session:' .. old, 'token') or ''), old)
    call('DEL', P .. 'session:' .. old)
    call('ZREM', P .. 'sessions', old)
  end
end

make_room(P .. 'logins:' .. token, of_token)
make_room(P .. 'sessions', most)
call('HSET', P .. 'session:' .. id, 'expires', num(t + ttl), unpack(ARGV, 7))
call('PEXPIRE', P .. 'session:' .. id, num(ttl))
call('ZADD', P .. 'sessions', num(t + ttl), id)
call('ZADD', P .. 'logins:' .. token, num(t + ttl), id)
call('PEXPIRE', P .. 'logins:' .. token, num(ttl))
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
log_change(t, tenant, token, 'log in', id, 'ok')
return 1
