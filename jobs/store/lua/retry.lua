-- RETRY id version tenant token hold -> {ok|conflict, state} | {version, stored} | {missing} | {over, cap, value, seconds}
-- Goes on with the ranges that are not done. hold: as in SUBMIT.
local id, version, actor, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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

local j = job(id)
if not j then return { 'missing' } end
if PENDABLE[j.state] then return { 'ok', j.state } end
if j.state ~= 'failed' and j.state ~= 'cancelled' then return { 'conflict', j.state } end
if j.version ~= version then return { 'version', j.version } end
local refused = by_tenant() and T.refusal(j.tenant)
if refused and ARGV[5] ~= '1' then return refused end
even_if_full()
reclaim(j, t)
call('HSET', key(id), 'since', num(t))
local pieces = call('LRANGE', key(id, 'dead'), 0, -1)
for from = 1, math.min(#pieces, DEAD_TEXTS), 1000 do
  local names = {}
  for i = from, math.min(from + 999, #pieces, DEAD_TEXTS) do names[#names + 1] = 'dead|' .. string.match(pieces[i], '^%d+') end
  call('HDEL', key(id), unpack(names))
end
for _, list in ipairs({ call('LRANGE', key(id, 'free'), 0, -1), call('ZRANGE', key(id, 'retry'), 0, -1) }) do
  for _, piece in ipairs(list) do pieces[#pieces + 1] = piece end
end
call('DEL', key(id, 'dead'), key(id, 'retry'), key(id, 'free'))
local ranges = {}
for i, piece in ipairs(pieces) do
  local lo, hi = split_range(piece)
  ranges[i] = { lo = lo, hi = hi }
end
if is_program(j) then ranges = joined(ranges) end
for from = 1, #ranges, 1000 do
  local texts = {}
  for i = from, math.min(from + 999, #ranges) do texts[#texts + 1] = range(ranges[i].lo, ranges[i].hi, 0, 0) end
  call('RPUSH', key(id, 'free'), unpack(texts))
end
call('HDEL', key(id), 'error', 'ended', 'stumbles')
if refused and j.done < j.total then T.put_in_backlog(j) end
set_state(j, 'queued', t)
if j.done == j.total then set_state(j, 'finishing', t) end
rest(j, t)
log_change(t, actor, token, 'retry', id, j.state)
return { 'ok', j.state }
