-- Webhooks: deliveries to those who are told of ends. A place is tenant|origin of their URLs: ct:outbox:{place} has
-- when each is due, ct:deliveries when the first of each place is. ct:deliveries:{tenant}:{state}: those that are
-- listed, by when they came there.

--- Pending deliveries with which a tenant may have nothing further that is told, and beyond which what ends is dropped.
local SUBMIT_PENDING, MAX_PENDING = 10000, 100000
--- Deliveries of a tenant that have ended and are listed, and for how many milliseconds.
local MAX_LISTED, KEPT_MS = 1000, { delivered = 86400000, dead = 604800000 }
--- Places at which one call looks; milliseconds for which one that has its part is passed over; the longest wait.
local MAX_DESTINATIONS, BACKOFF_MS, MAX_WAIT_MS = 200, 250, 7200000

-- Why nothing further with a webhook is taken of a tenant, as SUBMIT answers it, or nil.
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

-- A tenant whose receivers have been away for very long loses what is new; it is counted.
function Webhooks.add(id, tenant, url, now_ms, ...)
  local pending = PREFIX .. 'deliveries:' .. tenant .. ':pending'
  if call('ZCARD', pending) >= MAX_PENDING then return call('HINCRBY', PREFIX .. 'webhooks', 'dropped', 1) end
  call('HSET', PREFIX .. 'delivery:' .. id, 'tenant', tenant, 'url', url, 'created', decimal(now_ms), 'attempts', 0,
    'state', 'pending', ...)
  call('ZADD', pending, decimal(now_ms), id)
  schedule(id, tenant, url, now_ms)
end

-- Ends a delivery that is delivered or dead, and notes what came of it. It is listed for a while.
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

-- The id of a delivery, which a call that is repeated makes again.
function Webhooks.id_of(...) return 'msg_' .. string.sub(redis.sha1hex(table.concat({ ... }, '|')), 1, 27) end

-- Writes the delivery of a job that has ended.
function Webhooks.notify(job, now_ms)
  local known = call('HMGET', job_key(job.id), 'notify', 'error')
  local ends = decimal(call('HINCRBY', job_key(job.id), 'notifications', 1))
  local id = Webhooks.id_of(job.id, decimal(job.seq), decimal(now_ms), ends)
  Webhooks.add(id, job.tenant, known[1], now_ms, 'type', 'job.' .. job.state, 'job', job.id, 'kind', job.kind,
    'error', string.sub(known[2] or '', 1, 2000))
end

-- TAKE_DELIVERIES want lease attempts per_place per_host per_tenant busy(json: place, tenant|host or tenant ->
-- deliveries in hand) -> {now, {id, field, value ...} ...}. Due deliveries for one sender, for `lease` ms; those of a
-- sender that dies fall due again. No place, no host and no tenant has more of them in hand than its part, so that a
-- receiver that is slow holds up no other.
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
    -- Its tenant was removed, or it is broken.
    if not is_whole or not call('ZSCORE', PREFIX .. 'deliveries:' .. known[1] .. ':pending', id) then
      call('DEL', key)
      call('ZREM', PREFIX .. 'outbox:' .. destination, id)
    elseif tried >= attempts then
      end_listed(id, known[1], known[2], 'dead', now_ms, 'its coordinator died at each attempt')
    else
      call('HSET', key, 'attempts', decimal(tried + 1))
      call('ZADD', PREFIX .. 'outbox:' .. destination, decimal(now_ms + lease), id)
      -- How many tenants of this name were removed: the key that signs is not theirs.
      local generation = call('HGET', PREFIX .. 'generations', known[1]) or '0'
      taken[#taken + 1] = { id, 'generation', generation, unpack(call('HGETALL', key)) }
      return true
    end
  end

  -- Redis' clock has stepped back: what would fall due later than any wait is due now.
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
    -- Behind two bars, so that it is no place.
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
      call('ZADD', PREFIX .. 'deliveries', decimal(now_ms + BACKOFF_MS), destination) -- others come first
    end
  end
  return { decimal(now_ms), unpack(taken) }
end

-- END_DELIVERY id attempt outcome wait text -> ended | again | stale | missing. outcome: delivered, dead, or again,
-- due in `wait` ms.
local function end_delivery(args)
  local id, outcome, now_ms = args[1], args[3], now()
  local known = call('HMGET', PREFIX .. 'delivery:' .. id, 'tenant', 'url', 'attempts', 'state')
  if not (known[1] and known[2]) or known[4] ~= 'pending' then return 'missing' end
  -- Another sender has it. What is delivered is delivered.
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

-- RETRY_DELIVERY id tenant caller token -> ok | pending | missing | full. Tries a delivery again that has ended, or one
-- that waits at once.
local function retry_delivery(args)
  local id, tenant, now_ms = args[1], args[2], now()
  local known = call('HMGET', PREFIX .. 'delivery:' .. id, 'tenant', 'url', 'state')
  if known[1] ~= tenant or not known[2] then return 'missing' end
  -- It was that of another tenant of this name, which was removed.
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
