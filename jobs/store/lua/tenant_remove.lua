-- TENANT_REMOVE name tenant token -> ok | missing | default | busy | workflows | tokens | artifacts. Only a tenant none of whose jobs waits or
-- runs, and without tokens: whoever has one would go on as a tenant without caps.
local name, t = ARGV[1], now()
if call('ZSCORE', P .. 'tenants', name) == false then return 'missing' end
if name == 'default' then return 'default' end
if by_tenant() then T.recount(name) end
if call('EXISTS', P .. 'admitted:' .. name) == 1 or call('EXISTS', P .. 'backlog:' .. name, P .. 'blocked:' .. name) > 0 then
  return 'busy'
end
-- A later tenant of this name must not be given them.
if call('EXISTS', P .. 'workflows:' .. name) == 1 then return 'workflows' end
for _, id in ipairs(call('ZRANGE', P .. 'tokens', 0, -1)) do
  local token = call('HMGET', P .. 'token:' .. id, 'tenant', 'expires')
  local ends = tonumber(token[2] or 0) or 0
  if token[1] == name and (ends == 0 or ends > t) then return 'tokens' end
end
-- A later tenant of this name must not be given files, by their hashes alone. Those of deleted artifacts go soon.
local files = call('HGETALL', P .. 'files:' .. name)
for i = 2, #files, 2 do
  if select(2, split_file(files[i])) > 0 then return 'artifacts' end
end
if call('EXISTS', P .. 'artifacts:' .. name) == 1 then return 'artifacts' end
for i = 1, #files, 2 do drop_loose_file(name, files[i], t) end
for _, member in ipairs(call('ZRANGE', P .. 'uploads', 0, -1)) do
  if string.match(member, '^(.-)/') == name then call('ZADD', P .. 'uploads', 0, member) end
end
call('ZREM', P .. 'tenants', name)
call('HINCRBY', P .. 'generations', name, 1)
call('HDEL', P .. 'shares', name, name .. '|caps')
local required = by_tenant() and T.with_labels(name, '')
if required then call('HSET', P .. 'shares', '|requires', required) end
call('DEL', P .. 'lanes:' .. name)
call('SREM', P .. 'capped', name, 'gpu:' .. name)
call('DEL', P .. 'stored:' .. name)
call('HDEL', P .. 'stored', name)
-- A later tenant of this name must not be given them.
call('DEL', P .. 'secrets:' .. name, P .. 'secret:' .. name)
for _, id in ipairs(call('HVALS', P .. 'schedules:' .. name)) do
  call('ZREM', P .. 'schedules', id)
  call('DEL', P .. 'schedule:' .. id)
end
call('DEL', P .. 'schedules:' .. name)
for _, id in ipairs(call('HVALS', P .. 'profiles:' .. name)) do drop_profile(id) end
call('DEL', P .. 'profiles:' .. name)
for _, id in ipairs(call('HVALS', P .. 'services:' .. name)) do
  call('HSET', P .. 'service:' .. id, 'stopped', 1, 'deleted', 1)
end
call('DEL', P .. 'services:' .. name)
for _, state in ipairs({ 'pending', 'delivered', 'dead' }) do call('DEL', P .. 'deliveries:' .. name .. ':' .. state) end
for _, class in ipairs({ 'interactive', 'high', 'normal', 'low' }) do call('HDEL', P .. 'finish:' .. class, name) end
log_change(t, ARGV[2], ARGV[3], 'tenant', name, 'removed')
return 'ok'
