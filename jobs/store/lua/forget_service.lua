-- FORGET_SERVICE id -> 1 / 0: it is not deleted, or has replicas. Lets go of its artifact.
local id, t = ARGV[1], now()
local k = P .. 'service:' .. id
local known = call('HMGET', k, 'deleted', 'tenant', 'artifact')
if known[1] ~= '1' or call('HLEN', P .. 'servicereplicas:' .. id) > 0 then return 0 end
even_if_full()
call('DEL', k, P .. 'serviceasked:' .. id)
call('SREM', P .. 'services', id)
if known[3] and known[3] ~= '' then let_go(known[2], known[3], 'service:' .. id, t) end
return 1
