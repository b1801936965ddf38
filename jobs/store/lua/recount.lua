-- RECOUNT tenant id ... -> 1. Makes the sizes of these jobs what is stored of them, for tenants with a cap on stored bytes.
-- tenant: where the ids come from its own sizes, of which some may be of jobs that are gone; '' where not. Without any
-- id: makes the tenant's sum that of its sizes, its artifacts and its workflows, which are |files and |workflows.
local name = ARGV[1]
local caps = by_tenant() and name ~= '' and T.caps(name)
even_if_full()
local function recount(id)
  local row = redis.pcall('HMGET', key(id), 'state', 'tenant')
  local owner = row[1] and (row[2] or 'default')
  if owner then weigh(owner, id) end
  if caps and name ~= owner then caps.set_size(name, id, 0) end
end
for i = 2, #ARGV do
  if ARGV[i] ~= '|files' and ARGV[i] ~= '|workflows' then recount(ARGV[i]) end
end
if caps and #ARGV == 1 then
  weigh_files(name)
  weigh_workflows(name)
  local sum = 0
  for _, bytes in ipairs(call('HVALS', P .. 'stored:' .. name)) do sum = sum + (tonumber(bytes) or 0) end
  call('HSET', P .. 'stored', name, num(sum))
end
return 1
