-- COLLECT_ARTIFACT tenant id sha ... -> 1 / 0: somebody holds it. Forgets an artifact; files that no other refers to are
-- loose for ten minutes. The shas are those of its manifest, each once.
local of, id, t = ARGV[1], ARGV[2], now()
local place, index = P .. 'artifact:' .. of .. ':' .. id, P .. 'files:' .. of
even_if_full()
call('ZREM', P .. 'unheld', of .. '/' .. id)
if call('EXISTS', P .. 'holders:' .. of .. ':' .. id) == 1 then return 0 end
local known = call('HMGET', place, 'manifest', 'manifest_bytes')
if not known[1] then return 0 end
local freed, count = 0, 0
for from = 3, #ARGV, FILES_A_CALL do
  local till, written = math.min(from + FILES_A_CALL - 1, #ARGV), {}
  for i, text in ipairs(call('HMGET', index, unpack(ARGV, from, till))) do
    local size, references, objects = split_file(text or '')
    if size and references > 0 then
      written[#written + 1] = ARGV[from + i - 1]
      written[#written + 1] = num(size) .. ':' .. num(references - 1) .. ':' .. objects
      if references == 1 then
        call('ZADD', P .. 'loose', num(t + CONDEMNED_MS), of .. '/' .. ARGV[from + i - 1])
        freed, count = freed + size, count + 1
      end
    end
  end
  if #written > 0 then call('HSET', index, unpack(written)) end
end
count_files(of, 'stored', -count, -(freed + tonumber(known[2])))
count_files(of, 'loose', count, freed)
disown(of, known[1], t + CONDEMNED_MS)
call('DEL', place)
weigh_files(of)
return 1
