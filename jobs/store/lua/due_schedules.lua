-- DUE_SCHEDULES most without -> {now in seconds, {id, field, value ...} ...}. Those that are due, the longest first, but the
-- first `without`.
local t = now()
local found = { num(math.floor(t / 1000)) }
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'schedules', '-inf', num(t), 'LIMIT', ARGV[2] or 0, ARGV[1])) do
  local fields = call('HGETALL', P .. 'schedule:' .. id)
  if #fields == 0 then
    call('ZREM', P .. 'schedules', id)
  else
    found[#found + 1] = { id, unpack(fields) }
  end
end
return found
