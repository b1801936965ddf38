-- Read after the prelude. What only a cluster with registered tenants needs: docs/lease-protocol.md, Tenants and Order.
local T, shares_known, further, refused_for = {}, {}, nil, {}

-- Weight and caps of a tenant. max_lanes and max_jobs: 0 is none. caps: what -> most, or nil; units|kind and device_ms
-- of a day, named as ct:usage names them; stored_bytes.
function T.share_of(name)
  if not shares_known[name] then
    local stored, caps = call('HMGET', P .. 'shares', name, name .. '|caps'), nil
    local weight, lanes, jobs = string.match(stored[1] or '', '^(%d+)|(%d+)|(%d+)$')
    for what, most in string.gmatch(stored[2] or '', '([^=,]+)=(%d+)') do
      caps = caps or {}
      caps[what] = tonumber(most)
    end
    shares_known[name] = { weight = math.max(tonumber(weight or 1), 1), max_lanes = tonumber(lanes or 0),
      max_jobs = tonumber(jobs or 0), caps = caps }
  end
  return shares_known[name]
end

-- Labels that hosts need to compute for the tenants that require some: ct:shares has them in |requires, as
-- tenant=label+label, with commas between.
local wanted_labels
function T.wanted()
  if not wanted_labels then
    wanted_labels = {}
    for name, labels in string.gmatch(call('HGET', P .. 'shares', '|requires') or '', '([^=,]+)=([^,]+)') do
      wanted_labels[name] = labels
    end
  end
  return wanted_labels
end

-- Whether a host with these labels, with commas between, may not compute for a tenant; without labels: whether any may not.
function T.bars(name, labels)
  local wanted = T.wanted()[name]
  if not wanted or not labels then return wanted ~= nil end
  for label in string.gmatch(wanted, '[^+]+') do
    if not string.find(',' .. labels .. ',', ',' .. label .. ',', 1, true) then return true end
  end
  return false
end

-- What ct:shares is to have in |requires once a tenant requires these labels, with + between, or none; nil: what it has.
function T.with_labels(name, labels)
  local wanted, rows = T.wanted(), {}
  if (wanted[name] or '') == labels then return nil end
  wanted[name] = labels ~= '' and labels or nil
  for each, some in pairs(wanted) do rows[#rows + 1] = each .. '=' .. some end
  table.sort(rows)
  return table.concat(rows, ',')
end

-- A job that not every worker may take rings once for those that are idle: who may not take it rings for nobody else.
function T.ring_for_labelled(queue)
  local idle = call('ZCARD', P .. 'workers') - call('LLEN', 'rq:queue:' .. queue)
  for _ = 1, math.min(idle, TENANTS_TRIED) do ring(queue) end
end

-- Virtual times, in milliseconds of one lane over the tenant's weight, with the exactness of a double.
local function exact(x) return string.format('%.17g', x) end

-- ct:finish: the virtual time at which what a tenant was given of a class ends; it starts next at no earlier one. A
-- tenant that returns starts at the class' clock, ct:virtual.
function T.enter(queue, name)
  local class = class_of(queue)
  local finish, clock = number_at('HGET', P .. 'finish:' .. class, name), number_at('GET', P .. 'virtual:' .. class)
  if clock > finish then call('HSET', P .. 'finish:' .. class, name, exact(clock)) end
  call('ZADD', P .. 'order:' .. queue, 'NX', exact(math.max(finish, clock)), name)
end

-- Charges a tenant for time of one lane that it was given; less than 0 corrects what was estimated.
function T.bill(j, ms)
  if ms == 0 then return end
  local class, program = class_of(j.queue), is_program(j)
  local finish = call('HINCRBYFLOAT', P .. 'finish:' .. class, j.tenant, exact(ms / T.share_of(j.tenant).weight))
  local function order(device) return P .. 'order:' .. device .. '.' .. class end
  if program then call('ZADD', order('runner'), 'XX', finish, j.tenant) end
  if call('EXISTS', order('gpu'), order('any'), order('cpu')) == 0 then return end -- as often as not nobody waits
  for _, device in ipairs({ 'gpu', 'any', 'cpu' }) do call('ZADD', order(device), 'XX', finish, j.tenant) end
end

-- ct:order of a queue of runners, as ct:finish has it: work on other devices is not noted there, which would cost it a call.
function T.refresh(queue)
  local names = call('ZRANGE', P .. 'order:' .. queue, 0, -1)
  if #names < 2 then return end
  local words = {}
  for i, finish in ipairs(call('HMGET', P .. 'finish:' .. class_of(queue), unpack(names))) do
    words[2 * i - 1], words[2 * i] = finish or '0', names[i]
  end
  call('ZADD', P .. 'order:' .. queue, unpack(words))
end

function T.line_up(queue, name, id, turn)
  call('ZADD', P .. 'turns:' .. queue .. ':' .. name, turn, id)
  if not call('ZSCORE', P .. 'order:' .. queue, name) then T.enter(queue, name) end
end

function T.step_out(queue, name, id)
  local turns = P .. 'turns:' .. queue .. ':' .. name
  if call('ZREM', turns, id) == 1 and call('EXISTS', turns) == 0 then call('ZREM', P .. 'order:' .. queue, name) end
end

-- And those that hosts with these labels may not compute; without labels: that any may not.
function T.capped_out(queue, labels)
  local count, counted = 0, {}
  local function leave_out(name)
    if counted[name] then return end
    counted[name] = true
    count = count + call('ZCARD', P .. 'turns:' .. queue .. ':' .. name)
  end
  for _, member in ipairs(call('SMEMBERS', P .. 'capped')) do
    local device, name = string.match(member, '^(gpu):(.*)$')
    if not device or string.find(queue, '^[ga]') then leave_out(name or member) end
  end
  for name in pairs(T.wanted()) do
    if T.bars(name, labels) then leave_out(name) end
  end
  return count
end

-- What tenants with further caps need, or nil for one that has none.
function T.caps(name)
  if not T.share_of(name).caps then return nil end
  further = further or further_caps(T)
  return further
end

-- Leases of a tenant that are alive: lanes that work for it.
function T.lanes_of(name, t) return call('ZCOUNT', P .. 'lanes:' .. name, '(' .. num(t), '+inf') end

function T.is_limited(name) return T.share_of(name).max_lanes > 0 end

-- Lanes that a tenant may use besides those that it uses.
function T.room(name, t)
  return T.is_limited(name) and T.share_of(name).max_lanes - T.lanes_of(name, t) or math.huge
end

function T.occupy(name, token, t, ttl)
  call('ZADD', P .. 'lanes:' .. name, num(t + ttl), token)
  if T.is_limited(name) then T.note_cap(name, t) end
end

-- ct:capped: tenants that use all the lanes that they may. One that does no longer rings where its jobs wait.
function T.note_cap(name, t)
  local most = T.share_of(name).max_lanes
  if most > 0 and T.lanes_of(name, t) >= most then
    call('SADD', P .. 'capped', name)
  elseif call('SREM', P .. 'capped', name) == 1 then
    for _, queue in ipairs(every_queue()) do
      local waiting = call('ZCARD', P .. 'turns:' .. queue .. ':' .. name)
      if waiting > 0 and call('LLEN', 'rq:queue:' .. queue) < waiting then ring(queue) end
    end
  end
end

-- Bills what a lease really took; nothing for one that was granted while nobody was billed.
function T.settle_bill(j, l, ms)
  if not l.billed then return end
  T.bill(j, ms - l.billed)
  l.billed = ms
end

-- ct:admitted: jobs of a tenant that wait or run, and are not in its backlog.
function T.admit_or_dismiss(j, state)
  if j.backlog == 1 and state ~= 'queued' then
    call('ZREM', P .. 'backlog:' .. j.tenant, j.id)
    call('HDEL', key(j.id), 'backlog')
    j.backlog = 0
  end
  if PENDABLE[state] and j.backlog == 0 then
    call('ZADD', P .. 'admitted:' .. j.tenant, num(j.seq), j.id)
  else
    return call('ZREM', P .. 'admitted:' .. j.tenant, j.id) == 1
  end
end

function T.admit(j, t)
  call('HDEL', key(j.id), 'backlog')
  j.backlog = 0
  account(j)
  save(j)
  call('ZADD', P .. 'admitted:' .. j.tenant, num(j.seq), j.id)
  rest(j, t)
end

function T.admit_backlog(name, t, most)
  if call('EXISTS', P .. 'backlog:' .. name) == 0 then return end
  local blamed, limit = in_hand, T.share_of(name).max_jobs
  for _ = 1, most do
    if limit > 0 and call('ZCARD', P .. 'admitted:' .. name) >= limit then break end
    local id = call('ZPOPMIN', P .. 'backlog:' .. name)[1]
    if not id then break end
    local j = job(id)
    if j and j.backlog == 1 then T.admit(j, t) end
  end
  in_hand = blamed
end

-- Jobs that ended in a way that did not count, such as by a worker of an earlier version, are counted no longer.
function T.recount(name)
  for _, id in ipairs(call('ZRANGE', P .. 'admitted:' .. name, 0, 99)) do
    local values = redis.pcall('HMGET', key(id), 'state', 'tenant')
    if values.err or not PENDABLE[values[1]] or (values[2] or 'default') ~= name then
      call('ZREM', P .. 'admitted:' .. name, id)
    end
  end
end

local function whole_seconds(ms) return num(math.max(1, math.ceil(ms / 1000))) end

-- When a tenant's first jobs may leave room: seconds, and the event that happens then. end: one of them ends at its
-- present rate. day: all of them wait for the next day. '': unknown; the seconds are a guess, an hour at most.
local FIRST_ADMITTED = 16
local function room_of(name)
  local measured, guessed, deferred = math.huge, 3600000, 0
  for _, id in ipairs(call('ZRANGE', P .. 'admitted:' .. name, 0, FIRST_ADMITTED - 1)) do
    local j = read_job(id)
    if j and j.deferred == 1 then
      deferred = deferred + 1
    elseif j and j.rate > 0 and j.lanes > 0 then
      measured = math.min(measured, (j.total - j.done) * 1000 / j.rate)
    elseif j then
      guessed = math.min(guessed, j.est_ms * (1 - j.done / j.total) / math.max(j.lanes, 1))
    end
  end
  if measured < math.huge then return whole_seconds(measured), 'end' end
  if deferred == call('ZCARD', P .. 'admitted:' .. name) then return whole_seconds(DAY_MS - now() % DAY_MS), 'day' end
  return whole_seconds(guessed), ''
end

-- Why a tenant may have no more jobs that wait or run: {over, cap, its value, seconds, 0, event}; nil when it may.
function T.refusal(name)
  local most = T.share_of(name).max_jobs
  if most == 0 or call('ZCARD', P .. 'admitted:' .. name) < most then return nil end
  if not refused_for[name] then -- of several calls, the first finds it out
    T.recount(name)
    if call('ZCARD', P .. 'admitted:' .. name) < most then return nil end
    refused_for[name] = { room_of(name) }
  end
  return { 'over', 'max_jobs', num(most), refused_for[name][1], '0', refused_for[name][2] }
end

function T.put_in_backlog(j)
  call('HSET', key(j.id), 'backlog', 1)
  call('ZADD', P .. 'backlog:' .. j.tenant, call('INCR', P .. 'seq'), j.id)
  j.backlog = 1
  account(j)
  save(j)
end

-- Time for which nobody could serve a tenant is not saved up: it starts at the clocks when it is served again.
function T.forgo(name)
  for class in pairs(CLASSES) do
    local behind = number_at('GET', P .. 'virtual:' .. class) - number_at('HGET', P .. 'finish:' .. class, name)
    if behind > 0 then T.bill({ queue = 'any.' .. class, tenant = name }, behind * T.share_of(name).weight) end
  end
end

-- Forgets what was read of a tenant's weight and caps.
function T.forget(name) shares_known[name] = nil end
