-- RESCALE_SERVICE id from to needed_at -> 1 / 0: somebody else scaled it meanwhile. The leader scales by load.
local k = P .. 'service:' .. ARGV[1]
local known = call('HMGET', k, 'replicas', 'deleted')
if known[1] ~= ARGV[2] or known[2] == '1' then return 0 end
even_if_full()
call('HSET', k, 'replicas', ARGV[3], 'needed_at', ARGV[4])
return 1
