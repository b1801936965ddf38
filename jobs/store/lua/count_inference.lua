-- COUNT_INFERENCE coordinator number (tenant model requests prompt answer) ... -> 1 / 0: this batch of the coordinator was counted.
local k, number, t = P .. 'inferencecounted:' .. ARGV[1], ARGV[2], now()
if call('GET', k) == number then return 0 end
even_if_full()
call('SET', k, number, 'EX', 3600)
local day = num(math.floor(t / DAY_MS))
for i = 3, #ARGV, 5 do
  local usage, model = P .. 'usage:' .. ARGV[i], ARGV[i + 1]
  for place, what in ipairs({ 'requests', 'prompt', 'answer' }) do
    if ARGV[i + 1 + place] ~= '0' then call('HINCRBY', usage, day .. '|' .. what .. '|' .. model, ARGV[i + 1 + place]) end
  end
  call('SADD', P .. 'usages', ARGV[i])
end
return 1
