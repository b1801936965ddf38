-- ASK_SERVICES coordinator seconds (id requests new) ... -> how many there are. Requests that a coordinator has for services
-- now, those that wait included, and whether there are new ones: a service that was scaled to none wakes for those alone.
local who, seconds, t, found = ARGV[1], ARGV[2], now(), 0
even_if_full()
for i = 3, #ARGV, 3 do
  local k, asked = P .. 'service:' .. ARGV[i], P .. 'serviceasked:' .. ARGV[i]
  if call('EXISTS', k) == 1 then
    found = found + 1
    if ARGV[i + 2] == '1' or call('HGET', k, 'asked_at') ~= '0' then call('HSET', k, 'asked_at', num(t)) end
    call('HSET', asked, who, ARGV[i + 1])
    call('EXPIRE', asked, seconds)
  end
end
return found
