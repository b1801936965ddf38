-- ADD_SCHEDULE id most tenant token field value ... -> {new, id} | {exists, name} | {full, most} | {missing, tenant} | {artifact, id}.
local id, most, given = ARGV[1], tonumber(ARGV[2]), {}
for i = 5, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local of = given.tenant
local mine = P .. 'schedules:' .. of
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing', of } end
local known = call('HGET', mine, given.name)
if known == id then return { 'new', id } end
if known then return { 'exists', given.name } end
if call('HLEN', mine) >= most then return { 'full', num(most) } end
local needed = {}
for artifact in string.gmatch(given.artifacts, '[^,]+') do
  local holders = P .. 'holders:' .. of .. ':' .. artifact
  if call('EXISTS', holders) == 0 then return { 'artifact', artifact } end
  needed[#needed + 1] = holders
end
local t = now()
call('HSET', P .. 'schedule:' .. id, unpack(ARGV, 5))
call('HSET', mine, given.name, id)
call('ZADD', P .. 'schedules', given.next .. '000', id)
for _, holders in ipairs(needed) do call('SADD', holders, 'schedule:' .. id) end
log_change(t, ARGV[3], ARGV[4], 'add schedule', of .. '/' .. given.name, 'ok')
return { 'new', id }
