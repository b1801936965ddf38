-- CLAIM gpu worker ttl -> 1 | 0. Takes or renews a GPU, by UUID; ttl 0: gives it back.
local k = P .. 'gpu:' .. ARGV[1]
local owner = call('GET', k)
if owner and owner ~= ARGV[2] then
  if tonumber(ARGV[3]) > 0 then curtail(k, ARGV[3]) end
  return 0
end
even_if_full()
if tonumber(ARGV[3]) == 0 then
  call('DEL', k)
else
  call('SET', k, ARGV[2], 'PX', ARGV[3])
end
return 1
