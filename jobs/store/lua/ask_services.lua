-- ASK_SERVICES coordinator seconds (id requests) ... -> how many there are. Requests that a coordinator has for services now,
-- those that wait included; each is asked from now on, so that one that sleeps wakes.
local who, seconds, t, found = ARGV[1], ARGV[2], now(), 0
even_if_full()
for i = 3, #ARGV, 2 do
  local k, asked = P .. 'service:' .. ARGV[i], P .. 'serviceasked:' .. ARGV[i]
  if call('EXISTS', k) == 1 then
    found = found + 1
    call('HSET', k, 'asked_at', num(t))
    call('HSET', asked, who, ARGV[i + 1])
    call('EXPIRE', asked, seconds)
  end
end
return found
