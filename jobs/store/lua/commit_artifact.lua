-- COMMIT_ARTIFACT tenant id name bytes files manifest-size manifest-object most-artifacts tenant token model (sha size) ...
-- -> {new} | {there} | {missing, number, ...} | {over, cap, most, seconds, stored} | {full} | {gone}. Verifies that every
-- file is there with this size and refers to each, or changes nothing. name: '' keeps the artifact until it is deleted.
-- model: 1, a path of it is one of a model's.
local of, id, name, bytes, files = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local t = now()

local function hold()
  call('SADD', P .. 'holders:' .. of .. ':' .. id, name == '' and 'kept' or 'name:' .. name)
  call('ZADD', P .. 'artifacts:' .. of, 'NX', num(t), id)
  call('ZREM', P .. 'unheld', of .. '/' .. id)
  call('HSET', P .. 'artifact:' .. of .. ':' .. id, 'model', ARGV[11])
  if name ~= '' then point(of, name, id, t) end
end

if call('EXISTS', P .. 'artifact:' .. of .. ':' .. id) == 1 then
  local held = call('SISMEMBER', P .. 'holders:' .. of .. ':' .. id, name == '' and 'kept' or 'name:' .. name)
  hold()
  adopt_manifest(of, id, ARGV[7], t)
  if held == 0 then log_change(t, ARGV[9], ARGV[10], 'put artifact', of .. '/' .. id, name == '' and 'kept' or 'named ' .. name) end
  return { 'there' }
end
if call('ZCARD', P .. 'artifacts:' .. of) >= tonumber(ARGV[8]) then return { 'full' } end
local refusal = store_artifact(of, id, { bytes = bytes, files = files, manifest = ARGV[7], size = ARGV[6] }, ARGV, 12, t)
if refusal then return refusal end
hold()
log_change(t, ARGV[9], ARGV[10], 'put artifact', of .. '/' .. id, name == '' and 'new' or 'new, named ' .. name)
return { 'new' }
