-- Webhooks: deliveries to URLs that are notified when jobs and workflows end.
-- A destination is tenant|origin of the URL. ct:outbox:{destination} has its deliveries by due time; ct:deliveries has
-- the destinations by their first due time. ct:deliveries:{tenant}:{state} has the listed deliveries by the time of
-- their last change of state.

--- Number of a tenant's pending deliveries at which SUBMIT rejects jobs with a webhook, and number at which new
--- deliveries are dropped.
local SUBMIT_PENDING, MAX_PENDING = 10000, 100000
--- Maximum number of a tenant's listed ended deliveries, and milliseconds for which they are listed.
local MAX_LISTED, KEPT_MS = 1000, { delivered = 86400000, dead = 604800000 }
--- Maximum number of destinations read per call; milliseconds for which a destination at its limit is skipped; maximum
--- wait of a delivery in milliseconds.
local MAX_DESTINATIONS, BACKOFF_MS, MAX_WAIT_MS = 200, 250, 7200000

-- Return nil if the tenant may submit another job with a webhook, otherwise the rejection as SUBMIT returns it.
function Webhooks.check(tenant)
  if call('ZCARD', PREFIX .. 'deliveries:' .. tenant .. ':pending') < SUBMIT_PENDING then return nil end
  return { 'over', 'notify', decimal(SUBMIT_PENDING), '60' }
end

local function update_due(destination)
  local first = call('ZRANGE', PREFIX .. 'outbox:' .. destination, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', PREFIX .. 'deliveries', first[2], destination)
  else
    call('ZREM', PREFIX .. 'deliveries', destination)
  end
end

local function destination_of(tenant, url) return tenant .. '|' .. (string.match(url, '^%a+://[^/?#]*') or '') end

local function schedule(id, tenant, url, at)
  local destination = destination_of(tenant, url)
  call('ZADD', PREFIX .. 'outbox:' .. destination, decimal(at), id)
  update_due(destination)
end

-- Add a delivery. If too many are pending because receivers do not respond, drop and count it.
function Webhooks.add(id, tenant, url, now_ms, ...)
  local pending = PREFIX .. 'deliveries:' .. tenant .. ':pending'
  if call('ZCARD', pending) >= MAX_PENDING then return call('HINCRBY', PREFIX .. 'webhooks', 'dropped', 1) end
  call('HSET', PREFIX .. 'delivery:' .. id, 'tenant', tenant, 'url', url, 'created', decimal(now_ms), 'attempts', 0,
    'state', 'pending', ...)
  call('ZADD', pending, decimal(now_ms), id)
  schedule(id, tenant, url, now_ms)
end

-- End a delivery with its outcome. It remains listed for a while.
local function end_listed(id, tenant, url, state, now_ms, text)
  local kept, destination = KEPT_MS[state], destination_of(tenant, url)
  local listed = PREFIX .. 'deliveries:' .. tenant .. ':' .. state
  call('ZREM', PREFIX .. 'outbox:' .. destination, id)
  update_due(destination)
  call('ZREM', PREFIX .. 'deliveries:' .. tenant .. ':pending', id)
  call('HSET', PREFIX .. 'delivery:' .. id, 'state', state, 'ended', decimal(now_ms), 'said', text)
  call('PEXPIRE', PREFIX .. 'delivery:' .. id, kept)
  call('ZADD', listed, decimal(now_ms), id)
  call('PEXPIRE', listed, kept)
  call('ZREMRANGEBYSCORE', listed, '-inf', decimal(now_ms - kept))
  local old = call('ZPOPMIN', listed, decimal(math.max(call('ZCARD', listed) - MAX_LISTED, 0)))
  for i = 1, #old, 2 do call('DEL', PREFIX .. 'delivery:' .. old[i]) end
  call('HINCRBY', PREFIX .. 'webhooks', state, 1)
end

-- Return the ID of a delivery. A repeated call gets the same ID.
function Webhooks.id_of(...) return 'msg_' .. string.sub(redis.sha1hex(table.concat({ ... }, '|')), 1, 27) end

-- Add the delivery of a job that ended.
function Webhooks.notify(job, now_ms)
  local known = call('HMGET', job_key(job.id), 'notify', 'error')
  local ends = decimal(call('HINCRBY', job_key(job.id), 'notifications', 1))
  local id = Webhooks.id_of(job.id, decimal(job.seq), decimal(now_ms), ends)
  Webhooks.add(id, job.tenant, known[1], now_ms, 'type', 'job.' .. job.state, 'job', job.id, 'kind', job.kind,
    'error', string.sub(known[2] or '', 1, 2000))
end

-- TAKE_DELIVERIES want lease attempts per_destination per_host per_tenant busy(json) -> {now, {id, field, value ...}
-- ...}
-- Return due deliveries for one sender, claimed for `lease` ms: if the sender dies, they become due again. `busy` has
-- the active deliveries by destination, tenant||host and tenant. Each of these has a limit, so that a slow receiver
-- does not delay others.
local function take_deliveries(args)
  local want, lease, attempts = tonumber(args[1]), args[2], tonumber(args[3])
  local per_place, per_host, per_tenant = tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local busy = cjson.decode(args[7])
  local now_ms, taken = now(), {}

  local function take_delivery(destination, id)
    local key = PREFIX .. 'delivery:' .. id
    local known = call('HMGET', key, 'tenant', 'url', 'attempts')
    local tried = tonumber(known[3] or nil)
    local is_whole = known[1] and known[2] and tried
    -- The tenant was removed, or the delivery is broken.
    if not is_whole or not call('ZSCORE', PREFIX .. 'deliveries:' .. known[1] .. ':pending', id) then
      call('DEL', key)
      call('ZREM', PREFIX .. 'outbox:' .. destination, id)
    elseif tried >= attempts then
      end_listed(id, known[1], known[2], 'dead', now_ms, 'the coordinator died during each attempt')
    else
      call('HSET', key, 'attempts', decimal(tried + 1))
      call('ZADD', PREFIX .. 'outbox:' .. destination, decimal(now_ms + lease), id)
      -- Number of removed tenants with this name. They had different signing keys.
      local generation = call('HGET', PREFIX .. 'generations', known[1]) or '0'
      taken[#taken + 1] = { id, 'generation', generation, unpack(call('HGETALL', key)) }
      return true
    end
  end

  -- If Redis' clock was set back, due times beyond the maximum wait become due now.
  local function cap_due_times(destination)
    local outbox = PREFIX .. 'outbox:' .. destination
    local far = '(' .. decimal(now_ms + MAX_WAIT_MS)
    for _, id in ipairs(call('ZRANGEBYSCORE', outbox, far, '+inf', 'LIMIT', 0, 1000)) do
      call('ZADD', outbox, decimal(now_ms), id)
    end
    update_due(destination)
  end

  local function count_in_hand(name) busy[name] = (busy[name] or 0) + 1 end

  local far = '(' .. decimal(now_ms + MAX_WAIT_MS)
  for _, destination in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'deliveries', far, '+inf', 'LIMIT', 0, 100)) do
    cap_due_times(destination)
  end
  local limit = { 'LIMIT', 0, MAX_DESTINATIONS }
  local due = call('ZRANGEBYSCORE', PREFIX .. 'deliveries', '-inf', decimal(now_ms), unpack(limit))
  for _, destination in ipairs(due) do
    if #taken >= want then break end
    local tenant, rest = string.match(destination, '^([^|]*)|%a*:?/?/?(.*)$')
    -- Two bars distinguish it from a destination.
    local host = (tenant or '') .. '||' .. string.gsub(rest or destination, ':%d+$', '')
    tenant = tenant or destination
    local capacity = math.min(per_place - (busy[destination] or 0), per_host - (busy[host] or 0),
      per_tenant - (busy[tenant] or 0), want - #taken)
    if capacity > 0 then
      local outbox = PREFIX .. 'outbox:' .. destination
      for _, id in ipairs(call('ZRANGEBYSCORE', outbox, '-inf', decimal(now_ms), 'LIMIT', 0, capacity)) do
        if take_delivery(destination, id) then
          count_in_hand(destination)
          count_in_hand(host)
          count_in_hand(tenant)
        end
      end
      cap_due_times(destination)
    else
      call('ZADD', PREFIX .. 'deliveries', decimal(now_ms + BACKOFF_MS), destination) -- try other destinations first
    end
  end
  return { decimal(now_ms), unpack(taken) }
end

-- END_DELIVERY id attempt outcome wait text -> ended | again | stale | missing
-- The outcome is delivered, dead, or again in `wait` ms.
local function end_delivery(args)
  local id, outcome, now_ms = args[1], args[3], now()
  local known = call('HMGET', PREFIX .. 'delivery:' .. id, 'tenant', 'url', 'attempts', 'state')
  if not (known[1] and known[2]) or known[4] ~= 'pending' then return 'missing' end
  -- Another sender has the delivery. A successful delivery counts nevertheless.
  if known[3] ~= args[2] and outcome ~= 'delivered' then return 'stale' end
  call('HINCRBY', PREFIX .. 'webhooks', outcome == 'delivered' and 'succeeded' or 'failed', 1)
  if outcome ~= 'again' then
    end_listed(id, known[1], known[2], outcome, now_ms, args[5])
    return 'ended'
  end
  call('HSET', PREFIX .. 'delivery:' .. id, 'said', args[5])
  schedule(id, known[1], known[2], now_ms + args[4])
  return 'again'
end

-- RETRY_DELIVERY id tenant caller token -> ok | pending | missing | full
-- Retry an ended delivery, or attempt a pending one at once.
local function retry_delivery(args)
  local id, tenant, now_ms = args[1], args[2], now()
  local known = call('HMGET', PREFIX .. 'delivery:' .. id, 'tenant', 'url', 'state')
  if known[1] ~= tenant or not known[2] then return 'missing' end
  -- The delivery belonged to a removed tenant with this name.
  if not call('ZSCORE', PREFIX .. 'deliveries:' .. tenant .. ':' .. known[3], id) then return 'missing' end
  local pending = PREFIX .. 'deliveries:' .. tenant .. ':pending'
  if known[3] ~= 'pending' then
    if call('ZCARD', pending) >= MAX_PENDING then return 'full' end
    call('ZREM', PREFIX .. 'deliveries:' .. tenant .. ':' .. known[3], id)
    call('HSET', PREFIX .. 'delivery:' .. id, 'state', 'pending', 'attempts', 0)
    call('HDEL', PREFIX .. 'delivery:' .. id, 'ended')
    call('PERSIST', PREFIX .. 'delivery:' .. id)
    call('ZADD', pending, decimal(now_ms), id)
  end
  schedule(id, tenant, known[2], now_ms)
  Audit.log(now_ms, args[3], args[4], 'retry webhook', id, 'ok')
  return 'ok'
end

register({
  { 'end_delivery', end_delivery, 'allow-oom' },
  { 'retry_delivery', retry_delivery, 'allow-oom' },
  { 'take_deliveries', take_deliveries, 'allow-oom' },
})
