-- CHANGE_SERVICE tenant name what value caller token -> 1 / 0: there is none. what: scale to a number of replicas, which
-- also starts one that was stopped; restart all of them, one after the other; stop; delete, after which the name is free.
local of, name, what, value, t = ARGV[1], ARGV[2], ARGV[3], ARGV[4], now()
local id = call('HGET', P .. 'services:' .. of, name)
if not id then return 0 end
even_if_full()
local k = P .. 'service:' .. id
if what == 'scale' then
  local asked_at = value == '0' and '0' or num(t)
  call('HSET', k, 'replicas', value, 'stopped', 0, 'failures', 0, 'retry_at', 0, 'asked_at', asked_at, 'needed_at', num(t))
elseif what == 'restart' then
  call('HINCRBY', k, 'generation', 1)
  call('HSET', k, 'stopped', 0, 'failures', 0, 'retry_at', 0, 'asked_at', num(t))
elseif what == 'stop' then
  call('HSET', k, 'stopped', 1)
else
  call('HSET', k, 'stopped', 1, 'deleted', 1)
  call('HDEL', P .. 'services:' .. of, name)
end
log_change(t, ARGV[5], ARGV[6], what .. ' service', of .. '/' .. name, 'ok')
return 1
