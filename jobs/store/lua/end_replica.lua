-- END_REPLICA id number job failures retry_at said -> 1 / 0: it was noted before. Its job has ended; failures, if not empty,
-- and the time before which no other begins, in milliseconds.
local id, number, failures = ARGV[1], ARGV[2], ARGV[4]
if call('HEXISTS', P .. 'servicereplicas:' .. id, number) == 0 then return 0 end
even_if_full()
call('HDEL', P .. 'servicereplicas:' .. id, number)
call('DEL', P .. 'replica:' .. ARGV[3], P .. 'replicabusy:' .. ARGV[3])
if failures ~= '' then call('HSET', P .. 'service:' .. id, 'failures', failures, 'retry_at', ARGV[5], 'said', ARGV[6], 'died', ARGV[3]) end
return 1
