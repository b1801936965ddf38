-- Slots: the current job of each worker.

function Slots.remove(worker) call('ZREM', PREFIX .. 'slots', worker) end

-- Remove the job from a worker's slot, which the caller ends or assigns to another job, and reschedule the job. Return
-- whether the worker had a slot.
function Slots.release(worker, now_ms)
  local text = call('HGET', PREFIX .. 'slotjob', worker)
  if not text then return false end
  call('HDEL', PREFIX .. 'slotjob', worker)
  local id, lanes = string.match(text, '^(.*)|(%d+)$')
  local job = id and Jobs.find(id, Jobs.FOR_SLOT)
  if job then
    Jobs.count_holders(job, -1, -lanes)
    Queues.reschedule(job, now_ms)
  end
  return true
end

-- HOLD worker slot_ttl -> 1 | 0: the slot has expired
local function hold_slot(args)
  if not call('ZSCORE', PREFIX .. 'slots', args[1]) then return 0 end
  call('ZADD', PREFIX .. 'slots', decimal(now() + tonumber(args[2])), args[1])
  return 1
end

-- LEAVE worker -> 1
local function leave(args)
  Slots.remove(args[1])
  Slots.release(args[1], now())
  return 1
end

register({
  { 'hold', hold_slot, 'allow-oom' },
  { 'leave', leave, 'allow-oom' },
})
