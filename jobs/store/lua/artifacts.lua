-- Artifacts. See docs/artifacts.md.

-- Remove a holder. The leader later deletes artifacts without holders.
function Artifacts.release(tenant, id, holder, now_ms)
  call('SREM', PREFIX .. 'holders:' .. tenant .. ':' .. id, holder)
  if call('EXISTS', PREFIX .. 'holders:' .. tenant .. ':' .. id) == 1 then return end
  call('ZREM', PREFIX .. 'artifacts:' .. tenant, id)
  call('ZADD', PREFIX .. 'unheld', decimal(now_ms), tenant .. '/' .. id)
end

-- ct:names:{tenant} maps each name to one artifact, and the name is a holder of this artifact.
local function set_name(tenant, name, id, now_ms)
  local before = call('HGET', PREFIX .. 'names:' .. tenant, name)
  call('HSET', PREFIX .. 'names:' .. tenant, name, id)
  if before and before ~= id then Artifacts.release(tenant, before, 'name:' .. name, now_ms) end
end

-- Replace the manifest object of an existing artifact, because the old object may be lost.
function Artifacts.adopt_manifest(tenant, id, object, now_ms)
  if call('ZREM', PREFIX .. 'unowned', tenant .. '/' .. object) == 0 then return end
  local key = PREFIX .. 'artifact:' .. tenant .. ':' .. id
  Files.disown(tenant, call('HGET', key, 'manifest'), now_ms + DELETION_DELAY_MS)
  call('HSET', key, 'manifest', object)
end

-- Store an artifact and add a reference to each of its files. The caller adds a holder.
-- The items of `words` from `first` on are pairs of SHA-256 and size. `about` has bytes, files, manifest (its object)
-- and size (of the manifest). Return nil; otherwise change nothing and return the reason: {missing, index of a file,
-- ...} | {over, cap, most, seconds, stored} | {gone}.
function Artifacts.store(tenant, id, about, words, first, now_ms)
  local index, runs, missing, added, added_files = PREFIX .. 'files:' .. tenant, {}, {}, tonumber(about.size), 0
  for from = first, #words, 2 * FILES_PER_COMMAND do
    local shas, written, loose = {}, {}, {}
    for i = from, math.min(from + 2 * FILES_PER_COMMAND, #words + 1) - 1, 2 do shas[#shas + 1] = words[i] end
    for i, text in ipairs(call('HMGET', index, unpack(shas))) do
      local size, references, objects = string.match(text or '', '^(%d+):(%d+):(.+)$')
      if size ~= words[from + 2 * i - 1] then
        missing[#missing + 1] = (from - first) / 2 + i - 1
      else
        written[2 * i - 1], written[2 * i] = shas[i], size .. ':' .. references + 1 .. ':' .. objects
        if references == '0' then
          loose[#loose + 1] = tenant .. '/' .. shas[i]
          added, added_files = added + size, added_files + 1
        end
      end
    end
    runs[#runs + 1] = { written = written, loose = loose }
  end
  if #missing > 0 then return { 'missing', unpack(missing, 1, math.min(#missing, 100)) } end
  local most = Caps.max_stored_bytes(tenant)
  if most then
    local stored = read_number('HGET', PREFIX .. 'stored', tenant)
    if stored + added > most then return { 'over', 'max_stored_bytes', decimal(most), '3600', decimal(stored) } end
  end
  if call('ZREM', PREFIX .. 'unowned', tenant .. '/' .. about.manifest) == 0 then return { 'gone' } end
  for _, run in ipairs(runs) do
    call('HSET', index, unpack(run.written))
    if #run.loose > 0 then call('ZREM', PREFIX .. 'loose', unpack(run.loose)) end
  end
  Files.add_sums(tenant, 'loose', -added_files, -(added - tonumber(about.size)))
  Files.add_sums(tenant, 'stored', added_files, added)
  call('HSET', PREFIX .. 'artifact:' .. tenant .. ':' .. id, 'bytes', about.bytes, 'files', about.files,
    'created', decimal(now_ms), 'manifest', about.manifest, 'manifest_bytes', about.size)
  Caps.update_files_size(tenant)
end

-- COMMIT_ARTIFACT tenant id name bytes files manifest-size manifest-object most-artifacts tenant token model (sha
-- size) ... -> {new} | {there} | {missing, index, ...} | {over, cap, most, seconds, stored} | {full} | {gone}
-- Check that all files exist with these sizes and add a reference to each one, or change nothing. An empty name keeps
-- the artifact until it is deleted. model is 1 if a path of the artifact belongs to a model.
local function commit_artifact(args)
  local tenant, id, name, bytes, files = args[1], args[2], args[3], args[4], args[5]
  local now_ms = now()

  local function hold()
    call('SADD', PREFIX .. 'holders:' .. tenant .. ':' .. id, name == '' and 'kept' or 'name:' .. name)
    call('ZADD', PREFIX .. 'artifacts:' .. tenant, 'NX', decimal(now_ms), id)
    call('ZREM', PREFIX .. 'unheld', tenant .. '/' .. id)
    call('HSET', PREFIX .. 'artifact:' .. tenant .. ':' .. id, 'model', args[11])
    if name ~= '' then set_name(tenant, name, id, now_ms) end
  end

  if call('EXISTS', PREFIX .. 'artifact:' .. tenant .. ':' .. id) == 1 then
    local holder = name == '' and 'kept' or 'name:' .. name
    local held = call('SISMEMBER', PREFIX .. 'holders:' .. tenant .. ':' .. id, holder)
    hold()
    Artifacts.adopt_manifest(tenant, id, args[7], now_ms)
    local outcome = name == '' and 'kept' or 'named ' .. name
    if held == 0 then Audit.log(now_ms, args[9], args[10], 'put artifact', tenant .. '/' .. id, outcome) end
    return { 'there' }
  end
  if call('ZCARD', PREFIX .. 'artifacts:' .. tenant) >= tonumber(args[8]) then return { 'full' } end
  local about = { bytes = bytes, files = files, manifest = args[7], size = args[6] }
  local refusal = Artifacts.store(tenant, id, about, args, 12, now_ms)
  if refusal then return refusal end
  hold()
  local outcome = name == '' and 'new' or 'new, named ' .. name
  Audit.log(now_ms, args[9], args[10], 'put artifact', tenant .. '/' .. id, outcome)
  return { 'new' }
end

-- HOLD_ARTIFACT tenant id holder 1/0 -> 1 / 0: the artifact does not exist
-- Add a holder, such as job:ID, or remove it.
local function hold_artifact(args)
  local tenant, id, holder = args[1], args[2], args[3]
  if call('EXISTS', PREFIX .. 'artifact:' .. tenant .. ':' .. id) == 0 then return 0 end
  if args[4] == '0' then
    Artifacts.release(tenant, id, holder, now())
    return 1
  end
  if call('EXISTS', PREFIX .. 'holders:' .. tenant .. ':' .. id) == 0 then return 0 end
  call('SADD', PREFIX .. 'holders:' .. tenant .. ':' .. id, holder)
  return 1
end

-- Release an artifact that a job has stored or has read, unless the job still needs it.
local function release_by_job(tenant, artifact, id, now_ms)
  local state = call('HGET', job_key(id), 'state')
  if state and not Jobs.TERMINAL[state] then return end
  call('HDEL', job_key(id, 'kept'), artifact)
  Artifacts.release(tenant, artifact, 'job:' .. id, now_ms)
end

-- DELETE_ARTIFACT tenant id tenant token beside name job -> {ok} | {missing} | {held, holder}
-- Delete an artifact with its names and cached copies, unless it has other holders. If `beside` is 1, jobs may remain
-- holders: they keep it without a name until they are purged. If it has other names, remove only `name`. The job `job`
-- releases the artifact if it has ended, and remains a holder otherwise.
local function delete_artifact(args)
  local tenant, id, now_ms = args[1], args[2], now()
  local key = PREFIX .. 'holders:' .. tenant .. ':' .. id
  if call('EXISTS', key) == 0 then return { 'missing' } end
  local holders, named, released = call('SMEMBERS', key), 0, {}
  for _, holder in ipairs(holders) do
    if string.sub(holder, 1, 5) == 'name:' then named = named + 1 end
  end
  if named > 1 and args[6] ~= '' and call('HGET', PREFIX .. 'names:' .. tenant, args[6]) == id then
    call('HDEL', PREFIX .. 'names:' .. tenant, args[6])
    Artifacts.release(tenant, id, 'name:' .. args[6], now_ms)
    Audit.log(now_ms, args[3], args[4], 'delete artifact', tenant .. '/' .. id, 'the name ' .. args[6])
    return { 'ok' }
  end
  for _, holder in ipairs(holders) do
    if holder == 'kept' or string.sub(holder, 1, 5) == 'name:' or string.sub(holder, 1, 6) == 'place:' then
      released[#released + 1] = holder
    elseif holder ~= 'job:' .. args[7] and (args[5] ~= '1' or string.sub(holder, 1, 4) ~= 'job:') then
      return { 'held', holder }
    end
  end
  for _, holder in ipairs(released) do
    if string.sub(holder, 1, 5) == 'name:' then call('HDEL', PREFIX .. 'names:' .. tenant, string.sub(holder, 6)) end
    Artifacts.release(tenant, id, holder, now_ms)
  end
  local is_held = args[7] ~= '' and call('SISMEMBER', key, 'job:' .. args[7]) == 1
  if is_held then release_by_job(tenant, id, args[7], now_ms) end
  Audit.log(now_ms, args[3], args[4], 'delete artifact', tenant .. '/' .. id, 'ok')
  return { 'ok' }
end

-- COLLECT_ARTIFACT tenant id sha ... -> 1 / 0: it has a holder, or does not exist
-- Remove an artifact. Files without other references become loose for ten minutes. The SHA-256 sums are the distinct
-- ones in its manifest.
local function collect_artifact(args)
  local tenant, id, now_ms = args[1], args[2], now()
  local key, index = PREFIX .. 'artifact:' .. tenant .. ':' .. id, PREFIX .. 'files:' .. tenant
  call('ZREM', PREFIX .. 'unheld', tenant .. '/' .. id)
  if call('EXISTS', PREFIX .. 'holders:' .. tenant .. ':' .. id) == 1 then return 0 end
  local known = call('HMGET', key, 'manifest', 'manifest_bytes')
  if not known[1] then return 0 end
  local freed, count, match, until_then = 0, 0, string.match, decimal(now_ms + DELETION_DELAY_MS)
  for from = 3, #args, FILES_PER_COMMAND do
    local last, written, loose = math.min(from + FILES_PER_COMMAND - 1, #args), {}, {}
    for i, text in ipairs(call('HMGET', index, unpack(args, from, last))) do
      local size, references, objects = match(text or '', '^(%d+):(%d+):(.*)$')
      if size and references ~= '0' then
        local sha = args[from + i - 1]
        written[#written + 1], written[#written + 2] = sha, size .. ':' .. references - 1 .. ':' .. objects
        if references == '1' then
          loose[#loose + 1], loose[#loose + 2] = until_then, tenant .. '/' .. sha
          freed, count = freed + size, count + 1
        end
      end
    end
    if #written > 0 then call('HSET', index, unpack(written)) end
    if #loose > 0 then call('ZADD', PREFIX .. 'loose', unpack(loose)) end
  end
  Files.add_sums(tenant, 'stored', -count, -(freed + tonumber(known[2])))
  Files.add_sums(tenant, 'loose', count, freed)
  Files.disown(tenant, known[1], now_ms + DELETION_DELAY_MS)
  call('DEL', key)
  Caps.update_files_size(tenant)
  return 1
end

-- KEEP_OUTPUT id token tenant units(lo:hi,...) artifact bytes files manifest-size manifest-object (sha size) ... ->
-- {new} | {there} | {stale} | {units} | {missing, index, ...} | {over, cap, most, seconds, stored} | {gone}
-- Store the output of these units of the lease as an artifact that the job holds, or change nothing.
local function keep_output(args)
  local id, token, tenant, artifact = args[1], args[2], args[3], args[5]
  local now_ms, lease = now(), Leases.read(id, token)
  local job = call('HMGET', job_key(id), 'tenant', 'queue')
  if not lease or job[1] ~= tenant or not Programs.is_program_queue(job[2] or '') then return { 'stale' } end
  local units = {}
  for lo, hi in string.gmatch(args[4], '(%d+):(%d+)') do
    if tonumber(lo) < lease.lo or tonumber(hi) > lease.hi then return { 'units' } end
    for unit = tonumber(lo), tonumber(hi) - 1 do units[#units + 1] = decimal(unit) end
  end

  local outcome = 'there'
  if call('EXISTS', PREFIX .. 'artifact:' .. tenant .. ':' .. artifact) == 1 then
    Artifacts.adopt_manifest(tenant, artifact, args[9], now_ms)
  else
    local about = { bytes = args[6], files = args[7], manifest = args[9], size = args[8] }
    local refusal = Artifacts.store(tenant, artifact, about, args, 10, now_ms)
    if refusal then return refusal end
    outcome = 'new'
  end
  call('SADD', PREFIX .. 'holders:' .. tenant .. ':' .. artifact, 'job:' .. id)
  call('ZREM', PREFIX .. 'unheld', tenant .. '/' .. artifact)

  -- Count the units that refer to each artifact: the job releases an artifact after later attempts have replaced all
  -- its units.
  local files, counts, removed, added_units = job_key(id, 'files'), job_key(id, 'kept'), {}, 0
  for from = 1, #units, FILES_PER_COMMAND do
    local last, written = math.min(from + FILES_PER_COMMAND - 1, #units), {}
    for i, before in ipairs(call('HMGET', files, unpack(units, from, last))) do
      if before ~= artifact then
        if before then removed[before] = (removed[before] or 0) + 1 end
        added_units = added_units + 1
        written[#written + 1], written[#written + 2] = units[from + i - 1], artifact
      end
    end
    if #written > 0 then call('HSET', files, unpack(written)) end
  end
  if added_units > 0 then call('HINCRBY', counts, artifact, decimal(added_units)) end
  for before, count in pairs(removed) do
    if call('HINCRBY', counts, before, decimal(-count)) <= 0 then
      call('HDEL', counts, before)
      Artifacts.release(tenant, before, 'job:' .. id, now_ms)
    end
  end
  return { outcome }
end

register({
  { 'collect_artifact', collect_artifact, 'allow-oom' },
  { 'commit_artifact', commit_artifact },
  { 'delete_artifact', delete_artifact, 'allow-oom' },
  { 'hold_artifact', hold_artifact, 'allow-oom' },
  { 'keep_output', keep_output, 'allow-oom' },
})
