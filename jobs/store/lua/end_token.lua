-- END_TOKEN tokens|sessions id tenant token -> 1 / 0. A session dies with its token: it is looked up with it.
local index, id, tenant, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()
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
