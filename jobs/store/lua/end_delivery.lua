-- END_DELIVERY id attempt outcome wait text -> ended | again | stale | missing. outcome: delivered, dead, or again, due in `wait` ms.
K = K or ties()
local id, outcome, t = ARGV[1], ARGV[3], now()
local known = call('HMGET', P .. 'delivery:' .. id, 'tenant', 'url', 'attempts', 'state')
if not (known[1] and known[2]) or known[4] ~= 'pending' then return 'missing' end
even_if_full()
-- Another sender has it. What is delivered is delivered.
if known[3] ~= ARGV[2] and outcome ~= 'delivered' then return 'stale' end
call('HINCRBY', P .. 'webhooks', outcome == 'delivered' and 'succeeded' or 'failed', 1)
if outcome ~= 'again' then
  K.end_delivery(id, known[1], known[2], outcome, t, ARGV[5])
  return 'ended'
end
call('HSET', P .. 'delivery:' .. id, 'said', ARGV[5])
K.fall_due(id, known[1], known[2], t + ARGV[4])
return 'again'
