-- SPANS -> spans put away. The leader: what no lease went on with joins the others, and what is old goes.
local t = now()
even_if_full()
local latest = call('HGETALL', P .. 'span')
local count = 0
for i = 1, #latest, 2 do
  local to = string.match(latest[i + 1], '^.-:.-:.-:%d+:(%d+):')
  if not to then
    call('HDEL', P .. 'span', latest[i])
  elseif t - to > SPAN_GAP_MS then
    put_span_away(latest[i], latest[i + 1])
    call('HDEL', P .. 'span', latest[i])
    count = count + 1
  end
end
call('XTRIM', P .. 'spans', 'MINID', '~', num(t - SPANS_KEPT_MS))
return count
