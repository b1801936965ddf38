-- Ranges of units that are not leased. The lists `free` and `dead` have lo:hi:expiries:errors. The sorted set `retry`
-- has the same, scored by the time before which the range must not be leased.

function Ranges.format(lo, hi, expiries, errors)
  return decimal(lo) .. ':' .. decimal(hi) .. ':' .. decimal(expiries) .. ':' .. decimal(errors)
end

function Ranges.parse(text)
  local lo, hi, expiries, errors = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
  return tonumber(lo), tonumber(hi), tonumber(expiries), tonumber(errors)
end

-- Return the last multiple of the job's grain at or below a position, without exceeding 2^53.
function Ranges.align(job, position)
  return position - math.fmod(math.fmod(position, job.grain) + job.offset, job.grain)
end

-- Maximum number of a job's dead ranges whose error is kept.
local MAX_DEAD_ERRORS = 1000

-- Make a range dead and keep its error.
function Ranges.give_up(id, piece, text)
  if call('RPUSH', job_key(id, 'dead'), piece) > MAX_DEAD_ERRORS then return end
  call('HSET', job_key(id), 'dead|' .. string.match(piece, '^%d+'), text)
end

-- Return the range of a lease whose lane died. After max_expiries, halve it until only the unit that kills lanes is
-- left. Halves are leased first, so this unit is found after log2(units) steps.
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

-- Return the maximum wait in milliseconds of a range whose kernel raised this many errors.
function Ranges.backoff(errors) return math.min(60000, 500 * 2 ^ errors) end
