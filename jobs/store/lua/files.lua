-- Files of artifacts. See docs/artifacts.md.
-- ct:files:{tenant} maps the SHA-256 of each file to size:references:objects. A file without objects has lost its
-- bytes. ct:filesums has sums of files and bytes. A file without references is loose and is deleted later.

--- Milliseconds for which a loose file is kept.
local LOOSE_MS = 86400000

function Files.parse(text)
  local size, references, objects = string.match(text or '', '^(%d+):(%d+):(.*)$')
  return tonumber(size), tonumber(references), objects
end

function Files.add_sums(tenant, what, files, bytes)
  call('HINCRBY', PREFIX .. 'filesums', tenant .. '|' .. what .. '|files', decimal(files))
  call('HINCRBY', PREFIX .. 'filesums', tenant .. '|' .. what .. '|bytes', decimal(bytes))
end

-- ct:unowned has the objects (tenant/name) that belong to no file, with the time at which their bytes are deleted.
function Files.disown(tenant, objects, at)
  for object in string.gmatch(objects, '[^,]+') do
    call('ZADD', PREFIX .. 'unowned', decimal(at), tenant .. '/' .. object)
  end
end

-- Add a file whose objects were just removed from ct:unowned.
local function add(tenant, sha, size, objects, now_ms)
  local _, references, is_listed = Files.parse(call('HGET', PREFIX .. 'files:' .. tenant, sha))
  call('HSET', PREFIX .. 'files:' .. tenant, sha, size .. ':' .. decimal(references or 0) .. ':' .. objects)
  if is_listed then return end -- it had lost its bytes and is still counted
  call('ZADD', PREFIX .. 'loose', decimal(now_ms + LOOSE_MS), tenant .. '/' .. sha)
  Files.add_sums(tenant, 'loose', 1, tonumber(size))
end

function Files.drop_loose(tenant, sha, now_ms)
  local size, references, objects = Files.parse(call('HGET', PREFIX .. 'files:' .. tenant, sha))
  call('ZREM', PREFIX .. 'loose', tenant .. '/' .. sha)
  if not size or references > 0 then return end
  call('HDEL', PREFIX .. 'files:' .. tenant, sha)
  Files.disown(tenant, objects, now_ms + DELETION_DELAY_MS)
  Files.add_sums(tenant, 'loose', -1, -size)
end

-- Return whether a file is listed and has its bytes.
local function is_stored(tenant, sha)
  local _, _, objects = Files.parse(call('HGET', PREFIX .. 'files:' .. tenant, sha))
  return (objects or '') ~= ''
end

-- TOUCH_FILES tenant sha ... -> indexes, from 0, of the missing files
-- Keep the loose files among them for another day.
local function touch_files(args)
  local tenant, now_ms, answer = args[1], now(), {}
  local loose = decimal(now_ms + LOOSE_MS)
  for from = 2, #args, FILES_PER_COMMAND do
    local last = math.min(from + FILES_PER_COMMAND - 1, #args)
    for i, text in ipairs(call('HMGET', PREFIX .. 'files:' .. tenant, unpack(args, from, last))) do
      local _, references, objects = Files.parse(text or '')
      if (objects or '') == '' then
        answer[#answer + 1] = from + i - 3
      elseif references == 0 then
        call('ZADD', PREFIX .. 'loose', 'XX', 'GT', loose, tenant .. '/' .. args[from + i - 1])
      end
    end
  end
  return answer
end

-- BEGIN_OBJECTS tenant ms object ... -> 1
-- Announce objects before they are written. They are deleted unless they are assigned to a file within `ms`.
local function begin_objects(args)
  for i = 3, #args do Files.disown(args[1], args[i], now() + tonumber(args[2])) end
  return 1
end

-- ADD_FILES tenant (sha size object) ... -> new | there | gone for each, or {over, most, loose bytes} and nothing is
-- added
-- `gone` means that the object was not announced, or too long ago. The object of a file that already exists stays
-- unowned.
local function add_files(args)
  local tenant, now_ms, added, answer = args[1], now(), 0, {}
  for i = 2, #args, 3 do
    if not is_stored(tenant, args[i]) then added = added + tonumber(args[i + 1]) end
  end
  local most, loose = Caps.max_stored_bytes(tenant), read_number('HGET', PREFIX .. 'filesums', tenant .. '|loose|bytes')
  if most and loose + added > most then return { 'over', decimal(most), decimal(loose) } end
  for i = 2, #args, 3 do
    local sha, object, outcome = args[i], args[i + 2], 'there'
    if not is_stored(tenant, sha) then
      outcome = call('ZREM', PREFIX .. 'unowned', tenant .. '/' .. object) == 1 and 'new' or 'gone'
      if outcome == 'new' then add(tenant, sha, args[i + 1], object, now_ms) end
    end
    answer[#answer + 1] = outcome
  end
  return answer
end

-- ADD_PART tenant sha size number object -> {new} | {there} | {size} | {gone} | {over, most, loose bytes}
-- ct:parts:{tenant}:{sha} has the size of a file that is being uploaded, and the object of each part by number. `size`
-- means that the upload started with another size. `there` means that the part or the complete file is stored: adding a
-- part of a stored file would start an upload that never completes.
local function add_part(args)
  local tenant, sha, size, number, object, now_ms = args[1], args[2], args[3], args[4], args[5], now()
  local key = PREFIX .. 'parts:' .. tenant .. ':' .. sha
  if is_stored(tenant, sha) then return { 'there' } end
  local known_size = call('HGET', key, 'size')
  if known_size and known_size ~= size then return { 'size' } end
  local most, loose = Caps.max_stored_bytes(tenant), read_number('HGET', PREFIX .. 'filesums', tenant .. '|loose|bytes')
  if most and not known_size and loose + tonumber(size) > most then return { 'over', decimal(most), decimal(loose) } end
  if call('HEXISTS', key, number) == 1 then return { 'there' } end
  if call('ZREM', PREFIX .. 'unowned', tenant .. '/' .. object) == 0 then return { 'gone' } end
  call('HSET', key, 'size', size, number, object)
  call('ZADD', PREFIX .. 'uploads', decimal(now_ms + LOOSE_MS), tenant .. '/' .. sha)
  if not known_size then Files.add_sums(tenant, 'loose', 1, tonumber(size)) end
  return { 'new' }
end

-- END_PARTS tenant sha objects verified -> 1 / 0: the parts have changed
-- Turn the parts into a file if they were verified; otherwise release them.
local function end_parts(args)
  local tenant, sha, objects, now_ms = args[1], args[2], args[3], now()
  local key = PREFIX .. 'parts:' .. tenant .. ':' .. sha
  local size = call('HGET', key, 'size')
  if not size then return 0 end
  local number = 0
  for object in string.gmatch(objects, '[^,]+') do
    if call('HGET', key, decimal(number)) ~= object then return 0 end
    number = number + 1
  end
  if call('HLEN', key) ~= number + 1 then return 0 end
  call('DEL', key)
  call('ZREM', PREFIX .. 'uploads', tenant .. '/' .. sha)
  Files.add_sums(tenant, 'loose', -1, -tonumber(size))
  if args[4] == '1' and not is_stored(tenant, sha) then
    add(tenant, sha, size, objects, now_ms)
  else
    Files.disown(tenant, objects, now_ms)
  end
  return 1
end

-- LOSE_FILE tenant sha objects -> 1 / 0
-- Record that a file's bytes are lost. Clients that request it must upload it again.
local function lose_file(args)
  local tenant, sha = args[1], args[2]
  local size, references, objects = Files.parse(call('HGET', PREFIX .. 'files:' .. tenant, sha))
  if not size or objects ~= args[3] then return 0 end
  call('HSET', PREFIX .. 'files:' .. tenant, sha, decimal(size) .. ':' .. decimal(references) .. ':')
  Files.disown(tenant, objects, now())
  return 1
end

-- CONDEMN_FILES most -> objects (tenant/name) whose bytes must be deleted now
-- Remove expired loose files, uploads and unowned objects, at most `most` of each.
local function condemn_files(args)
  local now_ms, most = now(), tonumber(args[1])
  local function due(zset) return call('ZRANGEBYSCORE', PREFIX .. zset, '-inf', decimal(now_ms), 'LIMIT', 0, most) end
  for _, member in ipairs(due('loose')) do
    local tenant, sha = string.match(member, '^(.-)/(.*)$')
    if tenant then Files.drop_loose(tenant, sha, now_ms) else call('ZREM', PREFIX .. 'loose', member) end
  end
  for _, member in ipairs(due('uploads')) do
    local tenant, sha = string.match(member, '^(.-)/(.*)$')
    local fields = tenant and call('HGETALL', PREFIX .. 'parts:' .. tenant .. ':' .. sha) or {}
    for i = 1, #fields, 2 do
      local name, value = fields[i], fields[i + 1]
      if name == 'size' then
        Files.add_sums(tenant, 'loose', -1, -tonumber(value))
      else
        Files.disown(tenant, value, now_ms)
      end
    end
    if tenant then call('DEL', PREFIX .. 'parts:' .. tenant .. ':' .. sha) end
    call('ZREM', PREFIX .. 'uploads', member)
  end
  for _, member in ipairs(due('unowned')) do
    call('ZREM', PREFIX .. 'unowned', member)
    call('SADD', PREFIX .. 'doomed', member)
  end
  return call('SRANDMEMBER', PREFIX .. 'doomed', decimal(most))
end

register({
  { 'add_files', add_files, 'allow-oom' },
  { 'add_part', add_part, 'allow-oom' },
  { 'begin_objects', begin_objects },
  { 'condemn_files', condemn_files, 'allow-oom' },
  { 'end_parts', end_parts, 'allow-oom' },
  { 'lose_file', lose_file },
  { 'touch_files', touch_files },
})
