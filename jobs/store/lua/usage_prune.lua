-- USAGE_PRUNE tenant day -> fields removed. The leader: what was used on days before `day` is added up under `before`.
local k, removed = P .. 'usage:' .. ARGV[1], 0
even_if_full()
local stored = call('HGETALL', k)
for i = 1, #stored, 2 do
  local day, what = string.match(stored[i], '^(%d+)|(.+)$')
  if day and tonumber(day) < tonumber(ARGV[2]) then
    redis.pcall('HINCRBY', k, 'before|' .. what, stored[i + 1])
    call('HDEL', k, stored[i])
    removed = removed + 1
  end
end
return removed
