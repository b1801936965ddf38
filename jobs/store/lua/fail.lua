-- FAIL id token error jitter -> 1 | 0. The kernel raised: the range waits, or is dead after too many errors.
local id, token, text, jitter = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local t = now()
local j, l = take_back(id, token, t)
if not l then return 0 end
call('HSET', key(id), 'error', text)
call('HINCRBY', P .. 'outcomes', 'failed', 1)
local errors = l.errors + 1
local piece = range(l.lo, l.hi, l.expiries, errors)
if errors > MAX_ERRORS then
  give_up(id, piece, text)
else
  local wait = backoff(errors) * (0.5 + jitter / 2)
  call('ZADD', key(id, 'retry'), num(t + math.floor(wait)), piece)
end
after_lease(j, t)
return 1
