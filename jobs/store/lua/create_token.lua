-- CREATE_TOKEN id tenant token ttl most of name value ... -> {new} | {full} | {exists} | {missing}: its tenant is not registered. ttl: milliseconds, 0 for no end.
local id, tenant, token, ttl, most, of = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local t = now()
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing' } end
if call('EXISTS', P .. 'token:' .. id) == 1 then return { 'exists' } end

-- Those whose time is over are listed until there is no room.
local function forget_ended()
  for _, old in ipairs(call('ZRANGE', P .. 'tokens', 0, -1)) do
    local ends = tonumber(call('HGET', P .. 'token:' .. old, 'expires') or 0) or 0
    if 0 < ends and ends <= t then
      call('ZREM', P .. 'tokens', old)
      call('DEL', P .. 'token:' .. old, P .. 'logins:' .. old)
    end
  end
end

if call('ZCARD', P .. 'tokens') >= most then forget_ended() end
if call('ZCARD', P .. 'tokens') >= most then return { 'full' } end
call('HSET', P .. 'token:' .. id, 'created', num(t), 'expires', num(ttl > 0 and t + ttl or 0), 'used', 0, 'tenant', of, unpack(ARGV, 7))
call('ZADD', P .. 'tokens', num(t), id)
call('SET', P .. 'tokenset', num(t) .. ':' .. id)
log_change(t, tenant, token, 'create token', id, 'ok')
return { 'new' }
