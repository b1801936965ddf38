-- COMMIT_ARTIFACT tenant id name bytes files manifest-size manifest-object most-artifacts tenant token (sha size) ...
-- -> {new} | {there} | {missing, number, ...} | {over, cap, most, seconds, stored} | {full} | {gone}. Verifies that every
-- file is there with this size and refers to each, or changes nothing. name: '' keeps the artifact until it is deleted.
local of, id, name, bytes, files = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local t, first = now(), 11
local place, index = P .. 'artifact:' .. of .. ':' .. id, P .. 'files:' .. of

local function hold()
  call('SADD', P .. 'holders:' .. of .. ':' .. id, name == '' and 'kept' or 'name:' .. name)
  call('ZADD', P .. 'artifacts:' .. of, 'NX', num(t), id)
  call('ZREM', P .. 'unheld', of .. '/' .. id)
  if name ~= '' then point(of, name, id, t) end
end

if call('EXISTS', place) == 1 then
  local held = call('SISMEMBER', P .. 'holders:' .. of .. ':' .. id, name == '' and 'kept' or 'name:' .. name)
  hold()
  if call('ZREM', P .. 'unowned', of .. '/' .. ARGV[7]) == 1 then -- the manifest that was there may be lost
    disown(of, call('HGET', place, 'manifest'), t + CONDEMNED_MS)
    call('HSET', place, 'manifest', ARGV[7])
  end
  if held == 0 then log_change(t, ARGV[9], ARGV[10], 'put artifact', of .. '/' .. id, name == '' and 'kept' or 'named ' .. name) end
  return { 'there' }
end
if call('ZCARD', P .. 'artifacts:' .. of) >= tonumber(ARGV[8]) then return { 'full' } end

-- Of each run of files what HSET writes, and those that are loose until then.
local runs, missing, added, made = {}, {}, tonumber(ARGV[6]), 0
local match = string.match
for from = first, #ARGV, 2 * FILES_A_CALL do
  local shas, written, loose = {}, {}, {}
  for i = from, math.min(from + 2 * FILES_A_CALL, #ARGV + 1) - 1, 2 do shas[#shas + 1] = ARGV[i] end
  for i, text in ipairs(call('HMGET', index, unpack(shas))) do
    local size, references, objects = match(text or '', '^(%d+):(%d+):(.+)$')
    if size ~= ARGV[from + 2 * i - 1] then
      missing[#missing + 1] = (from - first) / 2 + i - 1
    else
      written[2 * i - 1], written[2 * i] = shas[i], size .. ':' .. references + 1 .. ':' .. objects
      if references == '0' then
        loose[#loose + 1] = of .. '/' .. shas[i]
        added, made = added + size, made + 1
      end
    end
  end
  runs[#runs + 1] = { written = written, loose = loose }
end
if #missing > 0 then return { 'missing', unpack(missing, 1, math.min(#missing, 100)) } end
local most = most_stored(of)
if most then
  local stored = number_at('HGET', P .. 'stored', of)
  if stored + added > most then return { 'over', 'max_stored_bytes', num(most), '3600', num(stored) } end
end
if call('ZREM', P .. 'unowned', of .. '/' .. ARGV[7]) == 0 then return { 'gone' } end
for _, run in ipairs(runs) do
  call('HSET', index, unpack(run.written))
  if #run.loose > 0 then call('ZREM', P .. 'loose', unpack(run.loose)) end
end
count_files(of, 'loose', -made, -(added - tonumber(ARGV[6])))
count_files(of, 'stored', made, added)
call('HSET', place, 'bytes', bytes, 'files', files, 'created', num(t), 'manifest', ARGV[7], 'manifest_bytes', ARGV[6])
hold()
weigh_files(of)
log_change(t, ARGV[9], ARGV[10], 'put artifact', of .. '/' .. id, name == '' and 'new' or 'new, named ' .. name)
return { 'new' }
