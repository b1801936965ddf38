-- Tokens and sessions.

-- CREATE_TOKEN id tenant token ttl most of name value ... -> {new} | {full} | {exists} | {missing}: the tenant `of` is
-- not registered
-- `ttl` is in milliseconds, 0 for no expiry.
local function create_token(args)
  local id, tenant, token, ttl, most, owner = args[1], args[2], args[3], tonumber(args[4]), tonumber(args[5]), args[6]
  local now_ms = now()
  if owner ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', owner) then return { 'missing' } end
  if call('EXISTS', PREFIX .. 'token:' .. id) == 1 then return { 'exists' } end

  -- Expired tokens are listed until the limit is reached.
  local function remove_expired()
    for _, old in ipairs(call('ZRANGE', PREFIX .. 'tokens', 0, -1)) do
      local ends = tonumber(call('HGET', PREFIX .. 'token:' .. old, 'expires') or 0) or 0
      if 0 < ends and ends <= now_ms then
        call('ZREM', PREFIX .. 'tokens', old)
        call('DEL', PREFIX .. 'token:' .. old, PREFIX .. 'logins:' .. old)
      end
    end
  end

  if call('ZCARD', PREFIX .. 'tokens') >= most then remove_expired() end
  if call('ZCARD', PREFIX .. 'tokens') >= most then return { 'full' } end
  local expires = decimal(ttl > 0 and now_ms + ttl or 0)
  call('HSET', PREFIX .. 'token:' .. id, 'created', decimal(now_ms), 'expires', expires, 'used', 0, 'tenant', owner,
    unpack(args, 7))
  call('ZADD', PREFIX .. 'tokens', decimal(now_ms), id)
  call('SET', PREFIX .. 'tokenset', decimal(now_ms) .. ':' .. id)
  Audit.log(now_ms, tenant, token, 'create token', id, 'ok')
  return { 'new' }
end

-- Return whether a token is valid and has the scope admin.
local function is_admin(id, now_ms)
  local row = redis.pcall('HMGET', PREFIX .. 'token:' .. id, 'scopes', 'expires')
  if row.err or not string.find(',' .. (row[1] or '') .. ',', ',admin,', 1, true) then return false end
  local ends = tonumber(row[2] or 0) or 0
  return ends == 0 or ends > now_ms
end

local function is_last_admin(id, now_ms)
  if not is_admin(id, now_ms) then return false end
  for _, other in ipairs(call('ZRANGE', PREFIX .. 'tokens', 0, -1)) do
    if other ~= id and is_admin(other, now_ms) then return false end
  end
  return true
end

-- END_TOKEN tokens|sessions id tenant token keep -> 1 / 0 / -1: keep is 1 and it is the last valid token with the
-- scope admin
-- Sessions end with their token, which is read together with them.
local function end_token(args)
  local index, id, tenant, token, keep = args[1], args[2], args[3], args[4], args[5]
  local now_ms = now()
  if keep == '1' and is_last_admin(id, now_ms) then return -1 end
  local removed = call('ZREM', PREFIX .. index, id)
  if index == 'tokens' then
    call('DEL', PREFIX .. 'logins:' .. id)
    removed = removed + call('DEL', PREFIX .. 'token:' .. id)
  else
    call('ZREM', PREFIX .. 'logins:' .. (call('HGET', PREFIX .. 'session:' .. id, 'token') or ''), id)
    removed = removed + call('DEL', PREFIX .. 'session:' .. id)
  end
  call('SET', PREFIX .. 'tokenset', decimal(now_ms) .. ':' .. id)
  if removed == 0 then return 0 end
  Audit.log(now_ms, tenant, token, index == 'tokens' and 'revoke token' or 'log out', id, 'ok')
  return 1
end

-- TOUCH_TOKEN id -> 1 / 0
-- Record that a token was used.
local function touch_token(args)
  local id = args[1]
  local now_ms = now()
  if call('EXISTS', PREFIX .. 'token:' .. id) == 0 then return 0 end
  call('HSET', PREFIX .. 'token:' .. id, 'used', decimal(now_ms))
  return 1
end

-- LOG_IN id tenant token ttl most most_of_token name value ... -> 1
-- Start a browser session. Beyond most_of_token, the oldest session of the token ends; beyond `most`, the oldest of all
-- sessions.
local function log_in(args)
  local id, tenant, token = args[1], args[2], args[3]
  local ttl, most, of_token = tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local now_ms = now()

  local function evict(index, max_sessions)
    call('ZREMRANGEBYSCORE', index, '-inf', decimal(now_ms))
    for _, old in ipairs(call('ZRANGE', index, 0, -max_sessions)) do
      call('ZREM', PREFIX .. 'logins:' .. (call('HGET', PREFIX .. 'session:' .. old, 'token') or ''), old)
      call('DEL', PREFIX .. 'session:' .. old)
      call('ZREM', PREFIX .. 'sessions', old)
    end
  end

  evict(PREFIX .. 'logins:' .. token, of_token)
  evict(PREFIX .. 'sessions', most)
  call('HSET', PREFIX .. 'session:' .. id, 'expires', decimal(now_ms + ttl), unpack(args, 7))
  call('PEXPIRE', PREFIX .. 'session:' .. id, decimal(ttl))
  call('ZADD', PREFIX .. 'sessions', decimal(now_ms + ttl), id)
  call('ZADD', PREFIX .. 'logins:' .. token, decimal(now_ms + ttl), id)
  call('PEXPIRE', PREFIX .. 'logins:' .. token, decimal(ttl))
  call('SET', PREFIX .. 'tokenset', decimal(now_ms) .. ':' .. id)
  Audit.log(now_ms, tenant, token, 'log in', id, 'ok')
  return 1
end

-- ADD_CODE digest token ttl most stands_for -> 1
-- Add a one-time login code of a token for `ttl` seconds. Beyond `most`, the token's oldest code becomes invalid.
local function add_code(args)
  local digest, ttl, most, stands_for = args[1], args[3], tonumber(args[4]), args[5]
  local codes = PREFIX .. 'codes:' .. args[2]
  call('SET', PREFIX .. 'login:' .. digest, stands_for, 'EX', ttl)
  call('RPUSH', codes, digest)
  call('EXPIRE', codes, ttl)
  while call('LLEN', codes) > most do call('DEL', PREFIX .. 'login:' .. call('LPOP', codes)) end
  return 1
end

register({
  { 'add_code', add_code },
  { 'create_token', create_token },
  { 'end_token', end_token, 'allow-oom' },
  { 'log_in', log_in, 'allow-oom' },
  { 'touch_token', touch_token },
})
