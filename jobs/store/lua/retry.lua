-- RETRY id version tenant token hold [workflow attempt] -> {ok|conflict, state} | {version, stored} | {missing} | {stale}
--   | {over, cap, value, seconds}
--   | {more}: call again; until then the job is as it was, but for the places of its ranges.
--   | {skipped, job because of which, its state | gone}: that must be tried again first.
-- Goes on with the ranges that are not done. hold: as in SUBMIT. workflow: while that runs in this attempt, else stale.
local id, version, actor, token, hold, workflow, attempt = unpack(ARGV)
local RETRIED = @RETRIED@ -- ranges of a program that one call moves
local t = now()

-- Ranges in order, those that touch as one: of a program each unit that failed is a range.
local function joined(ranges)
  local several = {}
  table.sort(ranges, function(a, b) return a.lo < b.lo end)
  for _, each in ipairs(ranges) do
    local last = several[#several]
    if last and last.hi == each.lo then last.hi = each.hi else several[#several + 1] = each end
  end
  return several
end

local function ranges_of(pieces)
  local ranges = {}
  for i, piece in ipairs(pieces) do
    local lo, hi = split_range(piece)
    ranges[i] = { lo = lo, hi = hi }
  end
  return ranges
end

local function put_free(ranges)
  for from = 1, #ranges, 1000 do
    local texts = {}
    for i = from, math.min(from + 999, #ranges) do texts[#texts + 1] = range(ranges[i].lo, ranges[i].hi, 0, 0) end
    call('RPUSH', key(id, 'free'), unpack(texts))
  end
end

-- Why ranges were given up, where that is kept.
local function forget_texts(pieces)
  for from = 1, #pieces, 1000 do
    local names = {}
    for i = from, math.min(from + 999, #pieces) do names[#names + 1] = 'dead|' .. string.match(pieces[i], '^%d+') end
    call('HDEL', key(id), unpack(names))
  end
end

-- The first of a list's ranges, at most RETRIED, which leave it.
local function taken(list)
  local some = call('LRANGE', list, 0, RETRIED - 1)
  call('LTRIM', list, #some, -1)
  return some
end

-- All ranges of a program, in any order, go to `retry`, by their first units instead of times, which are larger.
local function gather_some(j, stage)
  local retry, pieces = key(id, 'retry'), taken(key(id, 'dead'))
  forget_texts(pieces)
  if #pieces == 0 and stage ~= 'join' then pieces = taken(key(id, 'free')) end
  if #pieces == 0 then
    pieces = call('ZRANGEBYSCORE', retry, '(' .. num(j.total), '+inf', 'LIMIT', 0, RETRIED)
    for _, piece in ipairs(pieces) do call('ZREM', retry, piece) end
  end
  for _, piece in ipairs(pieces) do
    local lo, hi = split_range(piece)
    call('ZADD', retry, num(lo), range(lo, hi, 0, 0))
  end
  return #pieces
end

-- From there they come back in their order, those that touch as one.
local function join_some()
  local pieces = call('ZRANGE', key(id, 'retry'), 0, RETRIED - 1)
  if #pieces == 0 then return 0 end
  call('ZREMRANGEBYRANK', key(id, 'retry'), 0, #pieces - 1)
  local last = call('RPOP', key(id, 'free'))
  if last then table.insert(pieces, 1, last) end
  put_free(joined(ranges_of(pieces)))
  return #pieces
end

-- What would take one call too long is done by several; each begins where the last one ended, whoever makes it. Returns
-- nil where there is little to do, and whether there is more.
local function move_some(j)
  local stage = call('HGET', key(id), 'again')
  local count = call('LLEN', key(id, 'dead')) + call('LLEN', key(id, 'free')) + call('ZCARD', key(id, 'retry'))
  if not stage and count <= RETRIED then return nil end
  local next_stage = gather_some(j, stage) > 0 and 'gather' or 'join'
  if next_stage ~= stage then call('HSET', key(id), 'again', next_stage) end
  return next_stage == 'gather' or join_some() > 0
end

local function move_all(j)
  local pieces = call('LRANGE', key(id, 'dead'), 0, -1)
  forget_texts(pieces)
  for _, list in ipairs({ call('LRANGE', key(id, 'free'), 0, -1), call('ZRANGE', key(id, 'retry'), 0, -1) }) do
    for _, piece in ipairs(list) do pieces[#pieces + 1] = piece end
  end
  call('DEL', key(id, 'dead'), key(id, 'retry'), key(id, 'free'))
  local ranges = ranges_of(pieces)
  put_free(is_program(j) and joined(ranges) or ranges)
end

-- Somebody let one unit be leased again between two calls: the job is under way, and the rest follows as that unit did.
-- Returns whether there is more.
local function follow(j)
  if call('HEXISTS', key(id), 'again') == 0 or j.version ~= version then return false end
  even_if_full()
  local pieces = taken(key(id, 'dead'))
  if #pieces == 0 then
    call('HDEL', key(id), 'again')
    return false
  end
  reclaim(j, t)
  forget_texts(pieces)
  put_free(ranges_of(pieces))
  rest(j, t)
  return true
end

local goes = workflow and workflow_state(workflow, attempt)
if workflow and goes ~= 'running' and goes ~= 'waiting' then return { 'stale' } end
local j = job(id)
if not j then return { 'missing' } end
if PENDABLE[j.state] then
  if follow(j) then return { 'more' } end
  return { 'ok', j.state }
end
if j.state == 'blocked' then return { 'ok', j.state } end
if j.state ~= 'failed' and j.state ~= 'cancelled' and j.state ~= 'skipped' then return { 'conflict', j.state } end
if j.version ~= version then return { 'version', j.version } end
if string.find(j.ties, 'p', 1, true) then
  even_if_full()
  K = K or ties()
  local answer = K.retried(j, t)
  if answer and answer[1] == 'ok' then log_change(t, actor, token, 'retry', id, j.state) end
  if answer then return answer end
end
local refused = by_tenant() and T.refusal(j.tenant)
if refused and hold ~= '1' then return refused end
even_if_full()
reclaim(j, t)
local more
if is_program(j) then more = move_some(j) end
if more then return { 'more' } end
if more == nil then move_all(j) end
call('HSET', key(id), 'since', num(t))
call('HDEL', key(id), 'error', 'ended', 'stumbles', 'again')
if refused and j.done < j.total then T.put_in_backlog(j) end
set_state(j, 'queued', t)
if j.done == j.total then set_state(j, 'finishing', t) end
rest(j, t)
log_change(t, actor, token, 'retry', id, j.state)
return { 'ok', j.state }
