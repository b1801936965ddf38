-- END_TOKEN tokens|sessions id tenant token keep -> 1 / 0 / -1. A session dies with its token: it is looked up with it. keep 1: do not end the last valid token with the scope admin, -1.
local index, id, tenant, token, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local t = now()

local function is_admin(name)
  local row = redis.pcall('HMGET', P .. 'token:' .. name, 'scopes', 'expires')
  if row.err or not string.find(',' .. (row[1] or '') .. ',', ',admin,', 1, true) then return false end
  local ends = tonumber(row[2] or 0) or 0
  return ends == 0 or ends > t
end

local function is_last_admin()
  if not is_admin(id) then return false end
  for _, other in ipairs(call('ZRANGE', P .. 'tokens', 0, -1)) do
    if other ~= id and is_admin(other) then return false end
  end
  return true
end

if keep == '1' and is_last_admin() then return -1 end
even_if_full()
local was = call('ZREM', P .. index, id)
if index == 'tokens' then
  call('DEL', P .. 'logins:' .. id)
  was = was + call('DEL', P .. 'token:' .. id)
else
  call('ZREM', P .. 'logins:' .. (call('HGET', P .. 'session:' .. id, 'token') or ''), id)
  was = was + call('DEL', P .. 'session:' .. id)
end
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
if was == 0 then return 0 end
log_change(t, tenant, token, index == 'tokens' and 'revoke token' or 'log out', id, 'ok')
return 1
