-- FAIL_UNIT id token unit error most wait_ms row -> 1 | 0. The first unit of a lease of programs failed: it waits, or is dead
-- after more than `most` errors; the units after it are leased next. unit: that one, or ''; another is stale.
local id, token, unit, text, most, wait, row =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local FAILURES_KEPT = 1000
local t = now()
local j, l = take_back(id, token, t, unit)
if not l then return 0 end
local first = num(l.lo)
call('HSET', key(id), 'error', text)
call('HINCRBY', P .. 'outcomes', 'failed', 1)
if l.hi - l.lo > 1 then call('LPUSH', key(id, 'free'), range(l.lo + 1, l.hi, 0, 0)) end
local piece = range(l.lo, l.lo + 1, l.expiries, l.errors + 1)
if l.errors + 1 > most then
  give_up(id, piece, text)
else
  call('ZADD', key(id, 'retry'), num(t + wait), piece)
end
local failures = key(id, 'failures')
if row ~= '' and (call('HLEN', failures) < FAILURES_KEPT or call('HEXISTS', failures, first) == 1) then
  call('HSET', failures, first, row)
end
after_lease(j, t)
return 1
