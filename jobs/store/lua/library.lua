-- Base of the function library: constants, keys, calls of Redis, and registration of functions.
-- jobs/store/server/library.py joins the files of this folder, starting with this one, after LIBRARY (the library's
-- name) and SETTINGS. Each other file is a block: files share functions only through the tables declared here. Keys are
-- built here instead of being passed as arguments, because RQ does not support Redis Cluster. Times are milliseconds of
-- Redis time. Ranges are half-open.

-- Globals of Lua and Redis. Most of them do not exist while the library is loaded, and each access to a global needs
-- several lookups. The first call stores them in locals.
local function globals()
  return cjson, collectgarbage, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table,
    tonumber, tostring, type, unpack
end
local function register_function(definition) redis.register_function(definition) end
local cjson, collectgarbage, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table,
  tonumber, tostring, type, unpack

local Admission, Artifacts, Attachments, Audit, Caps, Dependencies, Files, Jobs, Leases, Output, Profiles, Programs =
  {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local Help, Offers, Order, Queues, Ranges, Repairs, Reservations, Results, Slots, Spans, Tenants, Requests, Usage =
  {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local Webhooks, Workers, Workflows = {}, {}, {}

local PREFIX = 'ct:'
local DAY_MS = 86400000
--- Maximum number of job and worker events in the cluster's stream.
local FLEET_EVENTS = '100000'
--- One of this many requests of a worker is reserved for an aged job.
local AGED_INTERVAL = 8
--- Maximum number of tenants whose first job NEXT reads.
local MAX_TENANTS_READ = 16
--- Milliseconds between two SWEEPs after which the leader counts as having been absent.
local SWEEP_OVERDUE_MS = 3000
--- Maximum number of an artifact's files that one command reads or writes.
local FILES_PER_COMMAND = 1000
--- Milliseconds after which the bytes of an unreferenced file are deleted.
local DELETION_DELAY_MS = 600000
--- Speed of Lua's garbage collector, in percent of new data. Redis starts a collection every 50 calls. At the usual
--- 200 %, it slows one call in ten down. At 20 %, it is spread over many calls, and Lua uses 3 MB instead of 1 MB.
local GARBAGE_STEP = 20
local ALL_QUEUES = SETTINGS.queues
local LEASE_TTL_MS, PROGRAM_TTL_MS, SLOT_TTL_MS, WORKER_TTL_MS =
  SETTINGS.lease_ttl_ms, SETTINGS.program_ttl_ms, SETTINGS.slot_ttl_ms, SETTINGS.worker_ttl_ms

-- State of one call, by name. A library lives as long as its server, so each call starts with a new table:
--   refused: Redis rejected a command, for example because its memory is full
--   is_redis_full: the function was called because Redis is full, and must not add data
--   job_id: the current job of the call; broken: jobs that the call cannot use, by ID
--   taken: NEXT's reply so far, when it runs again without a broken job
--   texts: decimal texts by number
local State

--- Upper limit of integers whose text is cached for the lifetime of the library.
local SMALL_NUMBER = 1000
local TEXT_OF, NUMBER_OF = {}, { [false] = 0 }

-- Return a number as text. Formatting takes half as long as a command, and one call writes the same time repeatedly.
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

-- Call a command. If the key has contents that no function writes, quarantine the key and continue as if it were empty.
-- Pass numbers as text: Redis formats an argument that is a number as slowly as it executes a small command.
local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return Repairs.recover(reply.err, ...) end
  return reply
end

-- Return a stored number, 0 if it is missing, or nil if it is not a number. Infinity and NaN minus themselves are not
-- 0.
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
  local first = call('ZRANGE', zset, '0', '0', 'WITHSCORES')
  return first[2] and tonumber(first[2]) or math.huge
end

-- Lower expiry times more than `ttl` in the future: they were written before Redis' clock was set back.
local function cap_scores(zset, now_ms, ttl)
  for _, member in ipairs(call('ZRANGEBYSCORE', zset, '(' .. decimal(now_ms + ttl), '+inf', 'LIMIT', '0', '100')) do
    call('ZADD', zset, decimal(now_ms + ttl), member)
  end
end

-- Lower the expiry of a key to `ttl` if it is higher.
local function cap_expiry(key, ttl)
  if call('PTTL', key) > tonumber(ttl) then call('PEXPIRE', key, ttl) end
end

-- Run one call. If it fails because of a job, quarantine the job and run the call again without it.
local function run(handler, args, is_read_only)
  if not redis then
    cjson, collectgarbage, error, ipairs, math, next, pairs, pcall, rawget, redis, setmetatable, string, table,
      tonumber, tostring, type, unpack = globals()
    collectgarbage('setstepmul', GARBAGE_STEP)
  end
  State = { is_read_only = is_read_only, refused = false, broken = {}, shares = {}, remaining = {}, texts = {},
    notified = 0, steps = 0 }
  for _ = 1, 100 do
    local ok, answer = pcall(handler, args)
    if ok then return answer end
    local is_table = type(answer) == 'table'
    local culprit = is_table and answer.broken or State.job_id
    if State.refused or not culprit then error(answer, 0) end
    if State.broken[culprit] then return 0 end
    Repairs.quarantine(culprit, is_table and (answer.why or answer.err) or tostring(answer))
  end
  return redis.error_reply('more than 100 jobs are broken. Call again.')
end

-- Register functions by name and flag. no-writes: the function only reads. allow-oom: the function keeps, ends, returns
-- or frees existing data and must work when Redis is full. Without a flag, it adds data, and a full Redis rejects it.
-- Standard functions such as ipairs do not exist while a library is loaded.
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

-- Return the error of a function that may not add data to a full Redis.
local function refuse_growth() return redis.error_reply("OOM command not allowed when used memory > 'maxmemory'.") end
