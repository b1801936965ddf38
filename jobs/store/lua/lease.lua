-- LEASE id token want least ttl worker lane rate higher(json) labels -> {ok, lo, hi, errors} | {wait} | {yield} | {finishing} | {gone}
-- labels: of the worker's host, as labels_of reads them.
-- want, least: units of the usual and of the smallest lease of this lane; rate: its units/s on this job, 0 if unknown.
local id, token, want, least, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local worker, lane, rate, higher = ARGV[6], ARGV[7], tonumber(ARGV[8]), cjson.decode(ARGV[9])
local t = now()
local j = job(id)
if not j then return { 'gone' } end
if is_program(j) then
  ttl = PROGRAM_TTL
  if not string.find(lane, '/', 1, true) then lane = worker .. '/' .. lane end
end
local row = redis.pcall('HMGET', P .. 'worker:' .. worker, 'drain', 'device', 'reserved', 'labels')
local labels = labels_of(ARGV[10], row[4])
local barred = by_tenant() and T.bars(j.tenant, labels)
if j.state == 'finishing' then return { barred and 'yield' or 'finishing' } end
if (j.state ~= 'queued' and j.state ~= 'running') or j.backlog == 1 then
  if j.state == 'cancelling' then reclaim(j, t) settle(j, t) end
  return { 'gone' }
end
reclaim(j, t)
settle(j, t)
if j.state == 'failed' then return { 'gone' } end
local mine = lease_of(id, token)
if mine then return { 'ok', num(mine.lo), num(mine.hi), num(mine.errors) } end
if barred or row[1] == '1' then return { 'yield' } end
if row[3] and is_program(j) then
  local r = reservation(row[3], t)
  if r and r.counts and r.runner == worker then want = math.min(want, units_beside(r, j, t)) end
  if want < 1 then return { 'yield' } end
end
local caps = by_tenant() and T.caps(j.tenant)
if caps and (caps.spent(j, t) or (row[2] == 'gpu' and caps.without_gpu(j.tenant, t))) then return { 'yield' } end
for _, queue in ipairs(higher) do
  if call('ZCARD', P .. 'pending:' .. queue) - capped_out(queue, labels) > 0 then return { 'yield' } end
end
-- Queues of this worker's device and of any device are those that it listens to.
local device = higher[1] and string.match(higher[1], '^(%a+)')

-- The tenant of a queue that was given least, of those that this worker may serve, and what it was given.
local function first_to_serve(queue)
  local from = 0
  while true do
    local head = call('ZRANGE', P .. 'order:' .. queue, from, from, 'WITHSCORES')
    if not head[1] or not T.bars(head[1], labels) then return head end
    from = from + 1
  end
end

if device and by_tenant() then -- a tenant of the same class that was given much less waits
  local class = class_of(j.queue)
  local finish = number_at('HGET', P .. 'finish:' .. class, j.tenant)
  if device == 'runner' then T.refresh(device .. '.' .. class) end
  for _, where in ipairs({ device, device ~= 'any' and device ~= 'runner' and 'any' or nil }) do
    local head = first_to_serve(where .. '.' .. class)
    local ahead = head[1] and head[1] ~= j.tenant and finish - head[2] > LEAD_MS
    if ahead and not is_capped(head[1]) then
      local its = row[2] == 'gpu' and T.caps(head[1])
      if not (its and its.without_gpu(head[1], t)) then return { 'yield' } end
    end
  end
end
if device and call('EXISTS', P .. 'aged') == 1 and call('HEXISTS', P .. 'aged', j.queue) == 0
    and number_at('HGET', P .. 'aging', worker) % AGED_TURN == 0 then -- the worker's next turn is that of an aged job
  for _, queue in ipairs(call('HKEYS', P .. 'aged')) do
    local where = string.match(queue, '^(%a+)')
    if where == device or (where == 'any' and device ~= 'runner') then return { 'yield' } end
  end
end
if saturated(j, t) or is_capped(j.tenant) then return { 'wait' } end

local lo, hi, expiries, errors
local retry = call('ZRANGEBYSCORE', key(id, 'retry'), '-inf', num(t), 'LIMIT', 0, 1)[1]
if retry then call('ZREM', key(id, 'retry'), retry) end
local piece = retry or call('LPOP', key(id, 'free'))
if piece then
  lo, hi, expiries, errors = split_range(piece)
elseif j.cursor < j.total then
  lo, hi, expiries, errors = j.cursor, j.total, 0, 0
else
  return { 'wait' }
end

-- The tail shrinks so that all lanes end together: half of this lane's share of what is left.
if j.lanes > 1 then
  local left = hi - lo + (piece and j.total - j.cursor or 0)
  for _, text in ipairs(call('LRANGE', key(id, 'free'), 0, 15)) do
    local a, b = split_range(text)
    left = left + (b - a)
  end
  local share = 1 / (j.max_running > 0 and math.min(j.lanes, j.max_running) or j.lanes)
  if rate > 0 and j.rate > 0 then share = math.min(rate / j.rate, 1) end
  want = math.min(want, math.max(least, math.floor(left * share / 2)))
end
if caps then want = math.min(want, caps.left(j.tenant, 'units|' .. j.kind, t)) end
local cut = hi
if want < hi - lo then
  cut = on_grain(j, lo + math.max(want, 1))
  if cut <= lo then cut = math.min(hi, cut + j.grain) end
end
if piece then
  if cut < hi then call('LPUSH', key(id, 'free'), range(cut, hi, expiries, errors)) end
else
  call('HSET', key(id), 'cursor', num(cut))
  j.cursor = cut
end
local estimate = rate > 0 and (cut - lo) * 1000 / rate or j.est_ms * ((cut - lo) / j.total)
local billed = grant(j, token, lo, cut, expiries, errors, ttl, lane, t, estimate, true)
if by_tenant() then T.bill(j, billed) end
call('HINCRBY', key(id), 'leases', 1)
if is_program(j) and forget_wait(id) == worker then -- others have their time before it is kept again
  call('HSET', P .. 'worker:' .. worker, 'kept_until', num(t))
end

if j.state == 'queued' then
  local fresh = j.started == 0
  start(j, t)
  if fresh then
    local pieces = math.floor((j.total - cut) / math.max(least, 1))
    ring_for_help(j, math.min(pieces, j.max_running > 0 and j.max_running - 1 or 1000))
  end
end
return { 'ok', num(lo), num(cut), num(errors) }
