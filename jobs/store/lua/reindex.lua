-- REINDEX id ... -> jobs that are there. The leader, after an index was put aside: what each job says of itself is
-- in every index again. Load and shapes are counted from nothing: the caller
-- has removed them.
local t = now()
even_if_full()
local holders, lanes = {}, {}
local slots = call('HGETALL', P .. 'slotjob')
for i = 2, #slots, 2 do
  local id, count = string.match(slots[i], '^(.*)|(%d+)$')
  call('ZADD', P .. 'slots', 'NX', num(t), slots[i - 1])
  if id then holders[id], lanes[id] = (holders[id] or 0) + 1, (lanes[id] or 0) + tonumber(count) end
end

local function place(j)
  call('ZADD', P .. 'jobs', num(j.seq), j.id)
  for state in pairs(STATES) do
    if state ~= j.state then call('ZREM', P .. 'in:' .. state, j.id) end
  end
  call('ZADD', P .. 'in:' .. j.state, num(j.seq), j.id)
  call(ACTIVE[j.state] and 'SADD' or 'SREM', P .. 'running', j.id)
  if by_tenant() then
    T.admit_or_dismiss(j, j.state)
    if j.backlog == 1 then call('ZADD', P .. 'backlog:' .. j.tenant, 'NX', num(j.seq), j.id) end
    if j.deferred == 1 then call('ZADD', P .. 'deferred:' .. j.tenant .. ':' .. j.kind, 'NX', num(j.seq), j.id) end
  end
  j.holders, j.lanes, j.load = holders[j.id] or 0, lanes[j.id] or 0, 0
  set(j, 'holders', num(j.holders), 'lanes', num(j.lanes), 'load', 0)
  account(j)
  save(j)
  note_holders(j)
  if j.state == 'blocked' then
    K = K or ties()
    K.count_blocked(j)
  end
  if not TERMINAL[j.state] then count_shape(j.tenant, needs(j), 1) end
end

local count = 0
for _, id in ipairs(ARGV) do
  local j = job(id)
  if j then
    count = count + 1
    place(j)
    if TERMINAL[j.state] then
      call('ZADD', P .. 'expiry', 'NX', num(t + j.ttl_ms), id)
    else
      if j.state == 'running' and j.timeout_ms > 0 then
        call('ZADD', P .. 'deadlines', 'NX', num(math.min(t, j.started) + j.timeout_ms), id)
      end
      if j.state == 'running' and j.done == j.total then whole(j, t) end
      rest(j, t)
    end
  end
end
return count
