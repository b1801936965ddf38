-- TOUCH_FILES tenant sha ... -> the numbers, from 0, of those that are missing. Those that are there and loose stay a day.
local of, t, answer = ARGV[1], now(), {}
local loose = num(t + LOOSE_MS)
for from = 2, #ARGV, FILES_A_CALL do
  local till = math.min(from + FILES_A_CALL - 1, #ARGV)
  for i, text in ipairs(call('HMGET', P .. 'files:' .. of, unpack(ARGV, from, till))) do
    local _, references, objects = split_file(text or '')
    if (objects or '') == '' then
      answer[#answer + 1] = from + i - 3
    elseif references == 0 then
      call('ZADD', P .. 'loose', 'XX', 'GT', loose, of .. '/' .. ARGV[from + i - 1])
    end
  end
end
return answer
