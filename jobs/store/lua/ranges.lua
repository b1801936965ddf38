-- Ranges of a job's units that are not leased.

-- free and dead: lists of lo:hi:expiries:errors. retry: the same, by the time before which it must not be tried.
function Ranges.format(lo, hi, expiries, errors)
  return decimal(lo) .. ':' .. decimal(hi) .. ':' .. decimal(expiries) .. ':' .. decimal(errors)
end

function Ranges.parse(text)
  local lo, hi, expiries, errors = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
  return tonumber(lo), tonumber(hi), tonumber(expiries), tonumber(errors)
end

-- The last multiple of the job's grain at or below a position, computed without leaving 2^53.
function Ranges.align(job, position)
  return position - math.fmod(math.fmod(position, job.grain) + job.offset, job.grain)
end

-- Ranges of a job of which it is kept why they were given up.
local MAX_DEAD_ERRORS = 1000

-- Tries a range no more, and notes why.
function Ranges.give_up(id, piece, text)
  if call('RPUSH', job_key(id, 'dead'), piece) > MAX_DEAD_ERRORS then return end
  call('HSET', job_key(id), 'dead|' .. string.match(piece, '^%d+'), text)
end

-- A range whose lane died once more. At the limit it is halved until only the part that kills is left. Halves are
-- leased before all else: what kills everywhere is found after the logarithm of the range, not after the range.
function Ranges.expire(job, lease)
  local expiries = lease.expiries + 1
  if expiries <= SETTINGS.max_expiries then
    call('RPUSH', job_key(job.id, 'free'), Ranges.format(lease.lo, lease.hi, expiries, lease.errors))
  elseif lease.hi - lease.lo == 1 then
    local text = 'lanes died ' .. decimal(expiries) .. ' times on unit ' .. decimal(lease.lo)
    Ranges.give_up(job.id, Ranges.format(lease.lo, lease.hi, expiries, lease.errors), text)
    call('HSETNX', job_key(job.id), 'error', text)
  else
    local middle = lease.lo + math.floor((lease.hi - lease.lo) / 2)
    local cut = Ranges.align(job, middle)
    if cut <= lease.lo then cut = middle end
    local most = SETTINGS.max_expiries
    call('LPUSH', job_key(job.id, 'free'), Ranges.format(cut, lease.hi, most, lease.errors),
      Ranges.format(lease.lo, cut, most, lease.errors))
  end
end

-- The longest wait of a range in which the kernel raised this many times.
function Ranges.backoff(errors) return math.min(60000, 500 * 2 ^ errors) end
