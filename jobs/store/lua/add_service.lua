-- ADD_SERVICE id most tenant token field value ... -> {new, id} | {exists, name} | {full, most} | {missing, tenant} | {artifact, id}.
local id, most, given = ARGV[1], tonumber(ARGV[2]), {}
for i = 5, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local of = given.tenant
local mine = P .. 'services:' .. of
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing', of } end
local known = call('HGET', mine, given.name)
if known == id then return { 'new', id } end
if known then return { 'exists', given.name } end
if call('HLEN', mine) >= most then return { 'full', num(most) } end
if given.artifact ~= '' and call('EXISTS', P .. 'holders:' .. of .. ':' .. given.artifact) == 0 then
  return { 'artifact', given.artifact }
end
local t = now()
call('HSET', P .. 'service:' .. id, 'created', num(t), 'asked_at', num(t), 'needed_at', num(t), 'generation', 1, 'next', 1, 'failures', 0, 'retry_at', 0, unpack(ARGV, 5))
call('HSET', mine, given.name, id)
call('SADD', P .. 'services', id)
if given.artifact ~= '' then call('SADD', P .. 'holders:' .. of .. ':' .. given.artifact, 'service:' .. id) end
log_change(t, ARGV[3], ARGV[4], 'add service', of .. '/' .. given.name, 'ok')
return { 'new', id }
