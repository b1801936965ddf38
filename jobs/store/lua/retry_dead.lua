-- RETRY_DEAD id first version tenant token hold -> {ok|conflict, state} | {version, stored} | {missing} | {none} | {over, cap, value, seconds}
-- Lets the range that begins at `first`, which was given up, be leased again; the others stay given up. hold: as in SUBMIT.
local id, first, version = ARGV[1], ARGV[2], ARGV[3]
local t = now()
local j = job(id)
if not j then return { 'missing' } end
if j.state ~= 'failed' and not PENDABLE[j.state] and j.state ~= 'paused' then return { 'conflict', j.state } end
if j.version ~= version then return { 'version', j.version } end

local piece
for _, text in ipairs(call('LRANGE', key(id, 'dead'), 0, -1)) do
  if string.match(text, '^%d+') == first then piece = text end
end
if not piece then return { 'none' } end
local refused = j.state == 'failed' and by_tenant() and T.refusal(j.tenant)
if refused and ARGV[6] ~= '1' then return refused end

even_if_full()
reclaim(j, t)
call('LREM', key(id, 'dead'), 1, piece)
call('HDEL', key(id), 'dead|' .. first)
local lo, hi = split_range(piece)
call('RPUSH', key(id, 'free'), range(lo, hi, 0, 0))
if j.state == 'failed' then
  call('HDEL', key(id), 'error', 'ended', 'stumbles')
  call('HSET', key(id), 'since', num(t))
  if refused then T.put_in_backlog(j) end
  set_state(j, 'queued', t)
end
rest(j, t)
log_change(t, ARGV[4], ARGV[5], 'retry', id .. ' from ' .. first, j.state)
return { 'ok', j.state }
