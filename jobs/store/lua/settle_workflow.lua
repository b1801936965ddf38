-- SETTLE_WORKFLOW id state attempt new ttl count job state ... name value ... -> 1 / 0: it is in another state meanwhile, or
-- one of these `count` jobs is. The leader's view of it.
-- ttl: milliseconds that it stays once it has ended. Whoever is to be told of its end is, by a delivery written here.
local id, was, attempt, state, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local of = P .. 'workflow:' .. id
local known = call('HMGET', of, 'state', 'attempt', 'counts')
if known[1] ~= was or known[2] ~= attempt then return 0 end
local first = 7 + 2 * tonumber(ARGV[6])
for i = 7, first - 1, 2 do
  if call('HGET', key(ARGV[i]), 'state') ~= ARGV[i + 1] then return 0 end
end
local ended = state == 'done' or state == 'failed' or state == 'cancelled'
even_if_full()
local before, t = known[3], now()
local function tell_receiver()
  local row = call('HMGET', of, 'notify', 'tenant', 'name', 'error')
  if not row[1] then return end
  K = K or ties()
  local ends = num(call('HINCRBY', of, 'told', 1))
  local name = 'msg_' .. string.sub(redis.sha1hex(table.concat({ 'workflow', id, num(t), ends }, '|')), 1, 27)
  K.add_delivery(name, row[2], row[1], t, 'type', 'workflow.' .. state, 'workflow', id, 'name', row[3] or '',
    'error', string.sub(row[4] or '', 1, 2000))
end
call('HSET', of, 'state', state, unpack(ARGV, first))
if ended and state ~= was then
  call('HSET', of, 'ended', num(t))
  tell_receiver()
  call('ZADD', P .. 'workflowexpiry', num(t + ttl), id)
  call('SREM', P .. 'workflowslive', id)
  call('DEL', P .. 'workflowretries:' .. id)
elseif not ended and call('HDEL', of, 'ended') == 1 then
  call('ZREM', P .. 'workflowexpiry', id)
  call('SADD', P .. 'workflowslive', id)
end
if state ~= was or before ~= call('HGET', of, 'counts') then
  call('HSET', of, 'changed', num(t))
  tell_workflow(id, state)
end
return 1
