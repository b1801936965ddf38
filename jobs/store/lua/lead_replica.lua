-- LEAD_REPLICA job token service number -> the number of the replica that leads its fellows of one generation; -1: the
-- lease is another's. Whoever asks first leads, until its job has ended or it takes no more requests.
local id, token, service, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if not call('HGET', key(id, 'lease'), token) then return -1 end
local replicas, k = P .. 'servicereplicas:' .. service, P .. 'service:' .. service
local function known(of)
  return string.match(call('HGET', replicas, of) or '', '^(%d+)|%d+|(%d+)$')
end
local generation = known(number)
if not generation then return -1 end
local field = 'leads:' .. generation
local leads = call('HGET', k, field)
if leads and leads ~= number then
  local _, stopping = known(leads)
  local state = call('HGET', key('v-' .. service .. '-' .. leads), 'state')
  if stopping == '0' and (state == 'running' or state == 'finishing') then return tonumber(leads) end
end
call('HSET', k, field, number)
call('HDEL', k, 'leads:' .. num(tonumber(generation) - 2))
return tonumber(number)
