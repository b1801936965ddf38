-- FOLLOW id unit tenant ttl most -> until | 0: `most` units are followed, and no tenant more than this one. Somebody follows a
-- unit of a program, until this time. Where all places are taken, a tenant that has two more than this one loses one.
-- ttl 0: nobody does any more, unless somebody else has said so since `most`, which is then the time answered before.
local of, t, k = ARGV[3], now(), P .. 'followed'
local member, ttl, most = of .. '/' .. ARGV[1] .. '|' .. ARGV[2], tonumber(ARGV[4]), ARGV[5]
if ttl == 0 then
  if call('ZSCORE', k, member) == most then call('ZREM', k, member) end
  return 0
end
even_if_full()
call('ZREMRANGEBYSCORE', k, '-inf', num(t))
cap(k, t, ttl)
if not call('ZSCORE', k, member) and call('ZCARD', k) >= tonumber(most) then
  local counts, first, largest = {}, {}, of
  for _, other in ipairs(call('ZRANGE', k, 0, -1)) do
    local name = string.match(other, '^[^/]*')
    counts[name], first[name] = (counts[name] or 0) + 1, first[name] or other
  end
  counts[of] = counts[of] or 0
  for name, count in pairs(counts) do
    if count > counts[largest] then largest = name end
  end
  if counts[largest] < counts[of] + 2 then return 0 end
  call('ZREM', k, first[largest])
end
call('ZADD', k, num(t + ttl), member)
return num(t + ttl)
