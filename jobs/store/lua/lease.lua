-- LEASE: grants a range of a job to a lane.

--- Milliseconds of virtual time by which a tenant can be ahead of a waiting tenant before its slots yield.
local LEAD_MS = 2000

-- LEASE id token want least ttl worker lane rate higher(json) labels -> {ok, lo, hi, errors} | {wait} | {yield} |
-- {finishing} | {gone}
-- `want` and `least` are the units of a typical and of the smallest lease of this lane. `rate` is the lane's units/s on
-- this job; 0 if unknown. `higher` are the queues with precedence. `labels` are the labels of the worker's host; see
-- labels_of.
local function lease(args)
  local id, token, want, least, ttl = args[1], args[2], tonumber(args[3]), tonumber(args[4]), tonumber(args[5])
  local worker, lane, rate, higher = args[6], args[7], tonumber(args[8]), cjson.decode(args[9])
  local now_ms = now()
  local job = Jobs.find(id, Jobs.FOR_LEASE)
  if not job then return { 'gone' } end
  if Programs.is_program(job) then
    ttl = PROGRAM_TTL_MS
    if not string.find(lane, '/', 1, true) then lane = worker .. '/' .. lane end
  end
  local row = redis.pcall('HMGET', PREFIX .. 'worker:' .. worker, 'drain', 'device', 'reserved', 'labels')
  local labels = Workers.labels_of(args[10], row[4])
  local is_excluded = Tenants.are_registered() and Tenants.excludes(job.tenant, labels)
  if job.state == 'finishing' then return { is_excluded and 'yield' or 'finishing' } end
  if (job.state ~= 'queued' and job.state ~= 'running') or job.backlog == 1 then
    if job.state == 'cancelling' then Leases.reclaim(job, now_ms) Jobs.settle(job, now_ms) end
    return { 'gone' }
  end
  Leases.reclaim(job, now_ms)
  Jobs.settle(job, now_ms)
  if job.state == 'failed' then return { 'gone' } end
  local current = Leases.read(id, token)
  if current then return { 'ok', decimal(current.lo), decimal(current.hi), decimal(current.errors) } end
  if is_excluded or row[1] == '1' then return { 'yield' } end
  if row[3] and Programs.is_program(job) then
    local reservation = Reservations.read(row[3], now_ms)
    if reservation and reservation.counts and reservation.runner == worker then
      want = math.min(want, Reservations.count_allowed_units(reservation, job, now_ms))
    end
    if want < 1 then return { 'yield' } end
  end
  local caps = Tenants.are_registered() and Tenants.has_caps(job.tenant)
  if caps and Caps.is_exhausted(job, now_ms) then return { 'yield' } end
  if caps and row[2] == 'gpu' and Caps.is_gpu_exhausted(job.tenant, now_ms) then return { 'yield' } end
  for _, queue in ipairs(higher) do
    if call('ZCARD', PREFIX .. 'pending:' .. queue) - Queues.count_capped(queue, labels) > 0 then return { 'yield' } end
  end
  -- The worker reads the queues for its own device and for any device.
  local device = higher[1] and string.match(higher[1], '^(%a+)')

  -- Return the tenant with the lowest virtual time in a queue, among those that this worker can serve, and that time.
  local function find_first_tenant(queue)
    local from = 0
    while true do
      local head = call('ZRANGE', PREFIX .. 'order:' .. queue, from, from, 'WITHSCORES')
      if not head[1] or not Tenants.excludes(head[1], labels) then return head end
      from = from + 1
    end
  end

  if device and Tenants.are_registered() then -- yield to a waiting tenant of the class that is far behind
    local class = Queues.class_of(job.queue)
    local finish = read_number('HGET', PREFIX .. 'finish:' .. class, job.tenant)
    if device == 'runner' then Tenants.refresh_order(device .. '.' .. class) end
    for _, device_class in ipairs({ device, device ~= 'any' and device ~= 'runner' and 'any' or nil }) do
      local head = find_first_tenant(device_class .. '.' .. class)
      local ahead = head[1] and head[1] ~= job.tenant and finish - head[2] > LEAD_MS
      if ahead and not Tenants.is_capped(head[1]) then
        local needs_gpu_check = row[2] == 'gpu' and Tenants.has_caps(head[1])
        if not (needs_gpu_check and Caps.is_gpu_exhausted(head[1], now_ms)) then return { 'yield' } end
      end
    end
  end
  if device and call('EXISTS', PREFIX .. 'aged') == 1 and call('HEXISTS', PREFIX .. 'aged', job.queue) == 0
      and read_number('HGET', PREFIX .. 'aging', worker) % AGED_INTERVAL == 0 then
    -- The worker's next request is reserved for an aged job.
    for _, queue in ipairs(call('HKEYS', PREFIX .. 'aged')) do
      local device_class = string.match(queue, '^(%a+)')
      if device_class == device or (device_class == 'any' and device ~= 'runner') then return { 'yield' } end
    end
  end
  if Leases.is_saturated(job, now_ms) or Tenants.is_capped(job.tenant) then return { 'wait' } end

  local lo, hi, expiries, errors
  local retry = call('ZRANGEBYSCORE', job_key(id, 'retry'), '-inf', decimal(now_ms), 'LIMIT', '0', '1')[1]
  if retry then call('ZREM', job_key(id, 'retry'), retry) end
  local piece = retry or call('LPOP', job_key(id, 'free'))
  if piece then
    lo, hi, expiries, errors = Ranges.parse(piece)
  elseif job.cursor < job.total then
    lo, hi, expiries, errors = job.cursor, job.total, 0, 0
  else
    return { 'wait' }
  end

  -- Shrink leases near the end so that all lanes finish together: grant half of this lane's share of the remaining
  -- units.
  if job.lanes > 1 then
    local left = hi - lo + (piece and job.total - job.cursor or 0)
    for _, text in ipairs(call('LRANGE', job_key(id, 'free'), '0', '15')) do
      local first, last = Ranges.parse(text)
      left = left + (last - first)
    end
    local share = 1 / (job.max_running > 0 and math.min(job.lanes, job.max_running) or job.lanes)
    if rate > 0 and job.rate > 0 then share = math.min(rate / job.rate, 1) end
    want = math.min(want, math.max(least, math.floor(left * share / 2)))
  end
  if caps then want = math.min(want, Caps.remaining(job.tenant, 'units|' .. job.kind, now_ms)) end
  local cut = hi
  if want < hi - lo then
    cut = Ranges.align(job, lo + math.max(want, 1))
    if cut <= lo then cut = math.min(hi, cut + job.grain) end
  end
  if piece then
    if cut < hi then call('LPUSH', job_key(id, 'free'), Ranges.format(cut, hi, expiries, errors)) end
  else
    if State.is_redis_full then return refuse_growth() end
    call('HSET', job_key(id), 'cursor', decimal(cut))
    job.cursor = cut
  end
  local estimate = rate > 0 and (cut - lo) * 1000 / rate or job.est_ms * ((cut - lo) / job.total)
  local billed = Leases.grant(job, token, lo, cut, expiries, errors, ttl, lane, now_ms, estimate, true)
  if Tenants.are_registered() then Tenants.bill(job, billed) end
  call('HINCRBY', job_key(id), 'leases', '1')
  if Programs.is_program(job) and Reservations.stop_waiting(id) == worker then
    -- Give other jobs time before the runner is reserved again.
    call('HSET', PREFIX .. 'worker:' .. worker, 'kept_until', decimal(now_ms))
  end

  if job.state == 'queued' then
    local is_first_start = job.started == 0
    Jobs.start(job, now_ms)
    if is_first_start then
      local pieces = math.floor((job.total - cut) / math.max(least, 1))
      Queues.notify_helpers(job, math.min(pieces, job.max_running > 0 and job.max_running - 1 or 1000))
    end
  end
  return { 'ok', decimal(lo), decimal(cut), decimal(errors) }
end

-- LEASE_WHEN_FULL: LEASE on a full Redis. It grants only returned ranges.
local function lease_when_full(args)
  State.is_redis_full = true
  return lease(args)
end

register({
  { 'lease', lease },
  { 'lease_when_full', lease_when_full, 'allow-oom' },
})
