-- COLLECT_ARTIFACT tenant id sha ... -> 1 / 0: somebody holds it. Forgets an artifact; files that no other refers to are
-- loose for ten minutes. The shas are those of its manifest, each once.
local of, id, t = ARGV[1], ARGV[2], now()
local place, index = P .. 'artifact:' .. of .. ':' .. id, P .. 'files:' .. of
even_if_full()
call('ZREM', P .. 'unheld', of .. '/' .. id)
if call('EXISTS', P .. 'holders:' .. of .. ':' .. id) == 1 then return 0 end
local known = call('HMGET', place, 'manifest', 'manifest_bytes')
if not known[1] then return 0 end
local freed, count, match, until_then = 0, 0, string.match, num(t + CONDEMNED_MS)
for from = 3, #ARGV, FILES_A_CALL do
  local till, written, loose = math.min(from + FILES_A_CALL - 1, #ARGV), {}, {}
  for i, text in ipairs(call('HMGET', index, unpack(ARGV, from, till))) do
    local size, references, objects = match(text or '', '^(%d+):(%d+):(.*)$')
    if size and references ~= '0' then
      local sha = ARGV[from + i - 1]
      written[#written + 1], written[#written + 2] = sha, size .. ':' .. references - 1 .. ':' .. objects
      if references == '1' then
        loose[#loose + 1], loose[#loose + 2] = until_then, of .. '/' .. sha
        freed, count = freed + size, count + 1
      end
    end
  end
  if #written > 0 then call('HSET', index, unpack(written)) end
  if #loose > 0 then call('ZADD', P .. 'loose', unpack(loose)) end
end
count_files(of, 'stored', -count, -(freed + tonumber(known[2])))
count_files(of, 'loose', count, freed)
disown(of, known[1], t + CONDEMNED_MS)
call('DEL', place)
weigh_files(of)
return 1
