-- COUNT_INFERENCE coordinator number (tenant model requests prompt answer service figures) ... -> 1 / 0: this batch of the
-- coordinator was counted. figures: JSON, name -> count of what is added to the service's last minute.
local k, number, t = P .. 'inferencecounted:' .. ARGV[1], ARGV[2], now()
if call('GET', k) == number then return 0 end
even_if_full()
call('SET', k, number, 'EX', 3600)
local day, slot = num(math.floor(t / DAY_MS)), math.floor(t / 10000)
for i = 3, #ARGV, 7 do
  local usage, model = P .. 'usage:' .. ARGV[i], ARGV[i + 1]
  for place, what in ipairs({ 'requests', 'prompt', 'answer' }) do
    if ARGV[i + 1 + place] ~= '0' then call('HINCRBY', usage, day .. '|' .. what .. '|' .. model, ARGV[i + 1 + place]) end
  end
  if ARGV[i + 2] ~= '0' then call('SADD', P .. 'usages', ARGV[i]) end
  local figures = P .. 'servicefigures:' .. ARGV[i + 5]
  if call('HGET', figures, 'slot') ~= num(slot) then
    for _, field in ipairs(call('HKEYS', figures)) do
      local of = tonumber(string.match(field, '^(%d+)|'))
      if of and of < slot - 6 then call('HDEL', figures, field) end
    end
    call('HSET', figures, 'slot', num(slot))
  end
  for what, count in pairs(cjson.decode(ARGV[i + 6])) do call('HINCRBY', figures, num(slot) .. '|' .. what, count) end
  call('PEXPIRE', figures, 90000)
end
return 1
