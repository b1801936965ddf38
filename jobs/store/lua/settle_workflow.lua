-- SETTLE_WORKFLOW id state attempt new ttl name value ... -> 1 / 0: it is in another state meanwhile. The leader's view of it.
-- ttl: milliseconds that it stays once it has ended.
local id, was, attempt, state, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local of = P .. 'workflow:' .. id
local known = call('HMGET', of, 'state', 'attempt', 'counts')
if known[1] ~= was or known[2] ~= attempt then return 0 end
local ended = state == 'done' or state == 'failed' or state == 'cancelled'
even_if_full()
local before = known[3]
call('HSET', of, 'state', state, unpack(ARGV, 6))
if ended and state ~= was then
  local t = now()
  call('HSET', of, 'ended', num(t))
  call('ZADD', P .. 'workflowexpiry', num(t + ttl), id)
  call('SREM', P .. 'workflowslive', id)
  call('DEL', P .. 'workflowretries:' .. id)
elseif not ended and call('HDEL', of, 'ended') == 1 then
  call('ZREM', P .. 'workflowexpiry', id)
  call('SADD', P .. 'workflowslive', id)
end
if state ~= was or before ~= call('HGET', of, 'counts') then tell_workflow(id, state) end
return 1
