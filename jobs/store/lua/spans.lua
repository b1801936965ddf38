-- Spans: the past work of lanes, for display. Consecutive leases on one job, or on small jobs of one kind, form one
-- span. ct:span has the latest span of each lane, ct:spans the earlier ones.

--- Maximum milliseconds between two leases of a span, and maximum length of a span.
local SPAN_GAP_MS, SPAN_MS = 1500, 30000
--- Milliseconds for which spans are kept.
local SPANS_KEPT_MS = 3660000

local function store_span(lane, text)
  call('XADD', PREFIX .. 'spans', 'MAXLEN', '~', SETTINGS.spans_kept, '*', 'lane', lane, 'span', text)
end

-- Add a lease to the lane's latest span, or start a new span. A span is job:kind:device:from:to:busy
-- ms:units:leases:jobs:small; the job is empty for several small jobs.
function Spans.extend(job, lease, device, units, ms, now_ms)
  local id, from, leases, jobs, latest = job.id, lease.granted, 1, 1, call('HGET', PREFIX .. 'span', lease.lane)
  if latest then
    local last_id, kind, last_device, begun, ended, busy, last_units, last_leases, last_jobs, small =
      string.match(latest, '^(.-):(.-):(.-):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d)$')
    local is_alike = ended and kind == job.kind and last_device == device
      and (last_id == id or (job.small == 1 and small == '1'))
    if is_alike and lease.granted - ended <= SPAN_GAP_MS and now_ms - begun <= SPAN_MS then
      if last_id ~= id then id, jobs = '', last_jobs + 1 else jobs = tonumber(last_jobs) end
      from, ms, units, leases = math.min(begun, from), ms + busy, units + last_units, last_leases + 1
    else
      store_span(lease.lane, latest)
    end
  end
  local text = table.concat({ id, job.kind, device, decimal(from), decimal(now_ms), decimal(ms), decimal(units),
    decimal(leases), decimal(jobs), decimal(job.small) }, ':')
  call('HSET', PREFIX .. 'span', lease.lane, text)
end

-- SPANS -> number of spans moved
-- The leader calls this. Move finished spans to ct:spans and delete old ones.
local function spans()
  local now_ms = now()
  local latest = call('HGETALL', PREFIX .. 'span')
  local count = 0
  for i = 1, #latest, 2 do
    local to = string.match(latest[i + 1], '^.-:.-:.-:%d+:(%d+):')
    if not to then
      call('HDEL', PREFIX .. 'span', latest[i])
    elseif now_ms - to > SPAN_GAP_MS then
      store_span(latest[i], latest[i + 1])
      call('HDEL', PREFIX .. 'span', latest[i])
      count = count + 1
    end
  end
  call('XTRIM', PREFIX .. 'spans', 'MINID', '~', decimal(now_ms - SPANS_KEPT_MS))
  return count
end

register({
  { 'spans', spans, 'allow-oom' },
})
