-- KEEP_OUTPUT id token tenant units(lo:hi,...) artifact bytes files manifest-size manifest-object (sha size) ...
-- -> {new} | {there} | {stale} | {units} | {missing, number, ...} | {over, cap, most, seconds, stored} | {gone}. Commits an
-- artifact that the job holds, as what these units of the lease left, or changes nothing.
local id, token, of, artifact = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local t, l = now(), lease_of(id, token)
local job = call('HMGET', key(id), 'tenant', 'queue')
if not l or (job[1] or 'default') ~= of or not runs_programs(job[2] or '') then return { 'stale' } end
local units = {}
for lo, hi in string.gmatch(ARGV[4], '(%d+):(%d+)') do
  if tonumber(lo) < l.lo or tonumber(hi) > l.hi then return { 'units' } end
  for unit = tonumber(lo), tonumber(hi) - 1 do units[#units + 1] = num(unit) end
end

local how = 'there'
if call('EXISTS', P .. 'artifact:' .. of .. ':' .. artifact) == 1 then
  adopt_manifest(of, artifact, ARGV[9], t)
else
  local refusal = store_artifact(of, artifact, { bytes = ARGV[6], files = ARGV[7], manifest = ARGV[9], size = ARGV[8] },
    ARGV, 10, t)
  if refusal then return refusal end
  how = 'new'
end
call('SADD', P .. 'holders:' .. of .. ':' .. artifact, 'job:' .. id)
call('ZREM', P .. 'unheld', of .. '/' .. artifact)

-- How many units name each artifact decides when the job lets go of one that a later attempt replaces.
local files, counts, fewer, more = key(id, 'files'), key(id, 'kept'), {}, 0
for from = 1, #units, FILES_A_CALL do
  local till, written = math.min(from + FILES_A_CALL - 1, #units), {}
  for i, before in ipairs(call('HMGET', files, unpack(units, from, till))) do
    if before ~= artifact then
      if before then fewer[before] = (fewer[before] or 0) + 1 end
      more = more + 1
      written[#written + 1], written[#written + 2] = units[from + i - 1], artifact
    end
  end
  if #written > 0 then call('HSET', files, unpack(written)) end
end
if more > 0 then call('HINCRBY', counts, artifact, num(more)) end
for before, count in pairs(fewer) do
  if call('HINCRBY', counts, before, num(-count)) <= 0 then
    call('HDEL', counts, before)
    let_go(of, before, 'job:' .. id, t)
  end
end
return { how }
