-- TAKE_DELIVERIES want lease attempts per_place per_host per_tenant busy(json: place, tenant|host or tenant -> deliveries in
-- hand) -> {now, {id, field, value ...} ...}. Due deliveries for one sender, for `lease` ms; those of a sender that dies fall
-- due again. No place, no host and no tenant has more of them in hand than its part, so that a receiver that is slow holds
-- up no other.
K = K or ties()
local want, lease, attempts = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local per_place, per_host, per_tenant, busy = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), cjson.decode(ARGV[7])
local PLACES, PASSED_MS, FURTHEST_MS = 200, 250, 7200000
local t, taken = now(), {}

local function take(place, id)
  local k = P .. 'delivery:' .. id
  local known = call('HMGET', k, 'tenant', 'url', 'attempts')
  local tried = tonumber(known[3] or nil)
  -- Its tenant was removed, or it is broken.
  if not (known[1] and known[2] and tried) or not call('ZSCORE', P .. 'deliveries:' .. known[1] .. ':pending', id) then
    call('DEL', k)
    call('ZREM', P .. 'outbox:' .. place, id)
  elseif tried >= attempts then
    K.end_delivery(id, known[1], known[2], 'dead', t, 'its coordinator died at each attempt')
  else
    call('HSET', k, 'attempts', num(tried + 1))
    call('ZADD', P .. 'outbox:' .. place, num(t + lease), id)
    -- How many tenants of this name were removed: the key that signs is not theirs.
    taken[#taken + 1] = { id, 'generation', call('HGET', P .. 'generations', known[1]) or '0', unpack(call('HGETALL', k)) }
    return true
  end
end

-- Redis' clock has stepped back: what would fall due later than any wait is due now.
local function come_back(place)
  local outbox = P .. 'outbox:' .. place
  for _, id in ipairs(call('ZRANGEBYSCORE', outbox, '(' .. num(t + FURTHEST_MS), '+inf', 'LIMIT', 0, 1000)) do
    call('ZADD', outbox, num(t), id)
  end
  K.note_place(place)
end

local function count(name) busy[name] = (busy[name] or 0) + 1 end

for _, place in ipairs(call('ZRANGEBYSCORE', P .. 'deliveries', '(' .. num(t + FURTHEST_MS), '+inf', 'LIMIT', 0, 100)) do
  come_back(place)
end
even_if_full()
for _, place in ipairs(call('ZRANGEBYSCORE', P .. 'deliveries', '-inf', num(t), 'LIMIT', 0, PLACES)) do
  if #taken >= want then break end
  local tenant, rest = string.match(place, '^([^|]*)|%a*:?/?/?(.*)$')
  -- Behind two bars, so that it is no place.
  local host = (tenant or '') .. '||' .. string.gsub(rest or place, ':%d+$', '')
  tenant = tenant or place
  local room = math.min(per_place - (busy[place] or 0), per_host - (busy[host] or 0), per_tenant - (busy[tenant] or 0),
    want - #taken)
  if room > 0 then
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'outbox:' .. place, '-inf', num(t), 'LIMIT', 0, room)) do
      if take(place, id) then
        count(place)
        count(host)
        count(tenant)
      end
    end
    come_back(place)
  else
    call('ZADD', P .. 'deliveries', num(t + PASSED_MS), place) -- others come first
  end
end
return { num(t), unpack(taken) }
