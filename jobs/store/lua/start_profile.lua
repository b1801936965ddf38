-- START_PROFILE id live mine most caller token field value ... -> {new, id} | {exists, name} | {full, most} | {live, most} |
-- {own, mine} | {missing, tenant}. live, mine: how many may be live in the cluster, and of the tenant.
local id, given = ARGV[1], {}
for i = 7, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local of, t = given.tenant, now()
local named = P .. 'profiles:' .. of
if of ~= 'default' and not call('ZSCORE', P .. 'tenants', of) then return { 'missing', of } end
local known = call('HGET', named, given.name)
if known == id then return { 'new', id } end
if known then return { 'exists', given.name } end
if call('HLEN', named) >= tonumber(ARGV[4]) then return { 'full', ARGV[4] } end
local live, own = call('HKEYS', P .. 'profiling'), 0
if #live >= tonumber(ARGV[2]) then return { 'live', ARGV[2] } end
for _, other in ipairs(live) do
  if call('HGET', P .. 'profile:' .. other, 'tenant') == of then own = own + 1 end
end
if own >= tonumber(ARGV[3]) then return { 'own', ARGV[3] } end
call('HSET', P .. 'profile:' .. id, 'created', num(t), 'until', num(t + given.seconds * 1000), unpack(ARGV, 7))
call('HSET', named, given.name, id)
turn_profile(id, 'recording')
log_change(t, ARGV[5], ARGV[6], 'start profile', of .. '/' .. given.name, 'ok')
return { 'new', id }
