-- Read after the prelude. What only a job needs that others wait for or hear of: docs/lease-protocol.md, Ties. The field
-- `ties` of a job has a letter for each: w, it belongs to a workflow; n, a webhook is told
-- of its end.
local K = {}

local function has(j, letter) return string.find(j.ties, letter, 1, true) ~= nil end

-- The leader looks at workflows that are due. Redis may refuse a worker of an earlier version what is kept of ties: the
-- leader finds by itself what was not noted.
function K.note_workflow(j)
  local workflow = call('HGET', key(j.id), 'workflow')
  if workflow then redis.pcall('SADD', P .. 'workflowsdue', workflow) end
end

-- Deliveries of webhooks. A place is tenant|origin of their URLs: ct:outbox:{place} has when each is due, ct:deliveries when
-- the first of each place is. ct:deliveries:{tenant}:{state}: those that are listed, by when they came there.
K.MAX_PENDING, K.LISTED, K.KEPT_MS = 100000, 1000, { delivered = 86400000, dead = 604800000 }

function K.note_place(place)
  local first = call('ZRANGE', P .. 'outbox:' .. place, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', P .. 'deliveries', first[2], place)
  else
    call('ZREM', P .. 'deliveries', place)
  end
end

local function place_of(tenant, url) return tenant .. '|' .. (string.match(url, '^%a+://[^/?#]*') or '') end

function K.fall_due(id, tenant, url, at)
  local place = place_of(tenant, url)
  call('ZADD', P .. 'outbox:' .. place, num(at), id)
  K.note_place(place)
end

-- A tenant whose receivers have been away for very long loses what is new; it is counted.
local function add_delivery(id, tenant, url, t, ...)
  local pending = P .. 'deliveries:' .. tenant .. ':pending'
  if call('ZCARD', pending) >= K.MAX_PENDING then return call('HINCRBY', P .. 'webhooks', 'dropped', 1) end
  call('HSET', P .. 'delivery:' .. id, 'tenant', tenant, 'url', url, 'created', num(t), 'attempts', 0, 'state', 'pending', ...)
  call('ZADD', pending, num(t), id)
  K.fall_due(id, tenant, url, t)
end

-- Ends a delivery that is delivered or dead, and notes what came of it. It is listed for a while.
function K.end_delivery(id, tenant, url, state, t, text)
  local kept, listed, place = K.KEPT_MS[state], P .. 'deliveries:' .. tenant .. ':' .. state, place_of(tenant, url)
  call('ZREM', P .. 'outbox:' .. place, id)
  K.note_place(place)
  call('ZREM', P .. 'deliveries:' .. tenant .. ':pending', id)
  call('HSET', P .. 'delivery:' .. id, 'state', state, 'ended', num(t), 'said', text)
  call('PEXPIRE', P .. 'delivery:' .. id, kept)
  call('ZADD', listed, num(t), id)
  call('PEXPIRE', listed, kept)
  call('ZREMRANGEBYSCORE', listed, '-inf', num(t - kept))
  local old = call('ZPOPMIN', listed, num(math.max(call('ZCARD', listed) - K.LISTED, 0)))
  for i = 1, #old, 2 do call('DEL', P .. 'delivery:' .. old[i]) end
  call('HINCRBY', P .. 'webhooks', state, 1)
end

-- ct:notifying: jobs with a webhook that have not ended, by when the leader looks whether they have: a worker of an
-- earlier version writes no delivery.
K.NOTIFYING_MS = 60000

function K.notify(j, t)
  if not TERMINAL[j.state] then return redis.pcall('ZADD', P .. 'notifying', num(t + K.NOTIFYING_MS), j.id) end
  if redis.pcall('ZREM', P .. 'notifying', j.id) ~= 1 then return end -- told already, or refused to this worker
  local known = call('HMGET', key(j.id), 'notify', 'error')
  if not known[1] then return end
  local ends = num(call('HINCRBY', key(j.id), 'told', 1))
  local id = 'msg_' .. string.sub(redis.sha1hex(table.concat({ j.id, num(j.seq), num(t), ends }, '|')), 1, 27)
  add_delivery(id, j.tenant, known[1], t, 'type', 'job.' .. j.state, 'job', j.id, 'kind', j.kind,
    'error', string.sub(known[2] or '', 1, 2000))
end

-- A job with ties has ended, or is tried again after its end.
function K.ended_or_returned(j, t)
  if has(j, 'w') then K.note_workflow(j) end
  if has(j, 'n') then K.notify(j, t) end
end
