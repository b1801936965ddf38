-- ATTACH id tenant job unit owner about(json) of-a-unit of-a-tenant of-all -> ok | other: the id is somebody else's | unit,
-- tenant, all: as many attachments as there may be. Asks for a shell beside a running unit; its runner takes it.
local id, of, job, unit, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local t, k, a = now(), P .. 'attachments', attached(ARGV[1])
if a then return (a.owner == owner and a.job == job and a.unit == unit) and 'ok' or 'other' end
end_silent_attachments(t)
local mine, this, counts = of .. '/', of .. '/' .. job .. '|' .. unit .. '|', { 0, 0, 0 }
for _, member in ipairs(call('ZRANGE', k, 0, -1)) do
  if string.sub(member, 1, #this) == this then counts[1] = counts[1] + 1 end
  if string.sub(member, 1, #mine) == mine then counts[2] = counts[2] + 1 end
  counts[3] = counts[3] + 1
end
for i, what in ipairs({ 'unit', 'tenant', 'all' }) do
  if counts[i] >= tonumber(ARGV[6 + i]) then return what end
end
a = { id = id, tenant = of, job = job, unit = unit, owner = owner }
call('HSET', P .. 'attachment:' .. id, 'state', 'asked', 'tenant', of, 'job', job, 'unit', unit, 'owner', owner, 'about', ARGV[6])
keep_attached(a, t)
return 'ok'
