-- The foundation of the library: constants, keys, calls of Redis, and the registration of functions.
-- jobs/store/server/library.py joins the files of this folder, this one first, behind LIBRARY, the library's name, and
-- SETTINGS. Each other file is a block of its own, so that files share functions through the tables of subjects alone.
-- Keys are built here and not passed: RQ rules Redis Cluster out, so nothing is lost. Times are milliseconds of Redis'
-- clock. Ranges are half open.

-- What Lua and Redis offer. Most of it does not exist yet while the library is loaded, and each use of a global costs
-- several look-ups: the first call makes them locals.
local function globals()
  return cjson, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table, tonumber, tostring,
    type, unpack
end
local function register_function(definition) redis.register_function(definition) end
local cjson, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table, tonumber, tostring,
  type, unpack

local Admission, Artifacts, Attachments, Audit, Caps, Dependencies, Files, Jobs, Leases, Output, Profiles, Programs =
  {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local Help, Offers, Order, Queues, Ranges, Repairs, Reservations, Results, Slots, Spans, Tenants, Requests, Usage =
  {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local Webhooks, Workers, Workflows = {}, {}, {}

local PREFIX = 'ct:'
local DAY_MS = 86400000
--- Events of jobs and workers that the cluster keeps.
local FLEET_EVENTS = 100000
--- A worker's turns of which one is an aged job's.
local AGED_INTERVAL = 8
--- Tenants at whose heads NEXT looks.
local MAX_TENANTS_READ = 16
--- SWEEP was away when it comes later than this after the last one.
local SWEEP_OVERDUE_MS = 3000
--- Files of an artifact that one command reads or writes.
local FILES_PER_COMMAND = 1000
--- Milliseconds until the bytes of a file that nothing refers to any more are deleted.
local DELETION_DELAY_MS = 600000
local ALL_QUEUES = SETTINGS.queues
local LEASE_TTL_MS, PROGRAM_TTL_MS, SLOT_TTL_MS, WORKER_TTL_MS =
  SETTINGS.lease_ttl_ms, SETTINGS.program_ttl_ms, SETTINGS.slot_ttl_ms, SETTINGS.worker_ttl_ms

-- What one call knows, by name. A library lives as long as its server, so each call begins with a new table:
--   refused: Redis refused a command, such as for want of memory
--   is_full: called to serve a full Redis, which takes no new work
--   job_id: the job that the call is about; broken: jobs that it cannot use, by id
--   taken: NEXT's answer, when it runs again without a broken job
--   texts: of numbers
local State

--- Integers below this are converted once for the lifetime of the library.
local SMALL_NUMBER = 1000
local TEXT_OF, NUMBER_OF = {}, {}

-- A number as text. A format takes as long as half a command, and a call writes the same time several times.
local function decimal(number)
  local texts = State.texts
  local text = TEXT_OF[number] or texts[number]
  if text then return text end
  local is_whole = number % 1 == 0
  text = string.format(is_whole and '%d' or '%.0f', number) -- '%.0f' is slow
  if is_whole and number >= 0 and number < SMALL_NUMBER then TEXT_OF[number] = text else texts[number] = text end
  return text
end

local function job_key(id, part) return PREFIX .. 'job:' .. id .. (part and (':' .. part) or '') end

-- Calls a command. A key with contents that no function writes is put aside, and its place is empty.
local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return Repairs.recover(reply.err, ...) end
  return reply
end

-- A number as stored, 0 if there is none; nil for what is no number. Infinities and NaN minus themselves are not 0.
local function parse_number(value)
  if not value then return 0 end
  local number = NUMBER_OF[value]
  if number then return number end
  number = tonumber(value)
  if not number or number - number ~= 0 then return nil end
  if number >= 0 and number < SMALL_NUMBER and decimal(number) == value then NUMBER_OF[value] = number end
  return number
end

local function read_number(command, ...) return tonumber(call(command, ...) or 0) or 0 end

local function earliest_score(zset)
  local first = call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or math.huge
end

-- Redis' clock may step back: a time later than `ttl` from now was meant to come before that.
local function cap_scores(zset, now_ms, ttl)
  for _, member in ipairs(call('ZRANGEBYSCORE', zset, '(' .. decimal(now_ms + ttl), '+inf', 'LIMIT', 0, 100)) do
    call('ZADD', zset, decimal(now_ms + ttl), member)
  end
end

-- Does the same for a key that Redis itself expires.
local function cap_expiry(key, ttl)
  if call('PTTL', key) > tonumber(ttl) then call('PEXPIRE', key, ttl) end
end

-- Runs one call. If it fails on a job, the job is quarantined and the call runs again as if the job were not there.
local function run(handler, args, is_read_only)
  if not redis then
    cjson, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table, tonumber, tostring,
      type, unpack = globals()
  end
  State = { is_read_only = is_read_only, refused = false, broken = {}, shares = {}, remaining = {}, texts = {}, notified = 0,
    steps = 0 }
  for _ = 1, 100 do
    local ok, answer = pcall(handler, args)
    if ok then return answer end
    local is_table = type(answer) == 'table'
    local culprit = is_table and answer.broken or State.job_id
    if State.refused or not culprit then error(answer, 0) end
    if State.broken[culprit] then return 0 end
    Repairs.quarantine(culprit, is_table and (answer.why or answer.err) or tostring(answer))
  end
  return redis.error_reply('more than 100 jobs are broken; call again')
end

-- Registers functions by name, each with its flag. no-writes: it only reads. allow-oom: it keeps, ends, shows or frees
-- what is there, and so must work in a full Redis. Without a flag it brings something new, and a full Redis refuses it.
-- While a library is loaded, Lua has no functions of its own, such as ipairs.
local function register(functions)
  for i = 1, #functions do
    local name, handler, flag = functions[i][1], functions[i][2], functions[i][3]
    local is_read_only = flag == 'no-writes'
    register_function({
      function_name = LIBRARY .. '_' .. name,
      callback = function(_, args) return run(handler, args, is_read_only) end,
      flags = { flag },
    })
  end
end

-- What a function answers that serves a full Redis, when it is asked for more than what is there.
local function refuse_growth() return redis.error_reply("OOM command not allowed when used memory > 'maxmemory'.") end
