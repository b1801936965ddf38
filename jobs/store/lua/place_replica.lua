-- PLACE_REPLICA id number generation -> 1 / 0: it is not the next number, or the service stops. The leader then submits its job.
local id, number, generation = ARGV[1], ARGV[2], ARGV[3]
local k, t = P .. 'service:' .. id, now()
local known = call('HMGET', k, 'next', 'stopped')
if known[1] ~= number or known[2] == '1' then return 0 end
call('HSET', k, 'next', num(tonumber(number) + 1))
call('HSET', P .. 'servicereplicas:' .. id, number, generation .. '|' .. num(t) .. '|0')
return 1
