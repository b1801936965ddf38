-- RETRY_DELIVERY id tenant caller token -> ok | pending | missing | full. Tries a delivery again that has ended, or one that waits at once.
K = K or ties()
local id, of, t = ARGV[1], ARGV[2], now()
local known = call('HMGET', P .. 'delivery:' .. id, 'tenant', 'url', 'state')
if known[1] ~= of or not known[2] then return 'missing' end
-- It was that of another tenant of this name, which was removed.
if not call('ZSCORE', P .. 'deliveries:' .. of .. ':' .. known[3], id) then return 'missing' end
local pending = P .. 'deliveries:' .. of .. ':pending'
if known[3] ~= 'pending' then
  if call('ZCARD', pending) >= K.MAX_PENDING then return 'full' end
  call('ZREM', P .. 'deliveries:' .. of .. ':' .. known[3], id)
  call('HSET', P .. 'delivery:' .. id, 'state', 'pending', 'attempts', 0)
  call('HDEL', P .. 'delivery:' .. id, 'ended')
  call('PERSIST', P .. 'delivery:' .. id)
  call('ZADD', pending, num(t), id)
end
K.fall_due(id, of, known[2], t)
log_change(t, ARGV[3], ARGV[4], 'retry webhook', id, 'ok')
return 'ok'
