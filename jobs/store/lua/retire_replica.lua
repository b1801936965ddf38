-- RETIRE_REPLICA id number -> 1 / 0: it is not there. It gets no new requests from now on.
local k, t = P .. 'servicereplicas:' .. ARGV[1], now()
local generation, since, stopping = string.match(call('HGET', k, ARGV[2]) or '', '^(%d+)|(%d+)|(%d+)$')
if not generation then return 0 end
if stopping ~= '0' then return 1 end
even_if_full()
call('HSET', k, ARGV[2], generation .. '|' .. since .. '|' .. num(t))
return 1
