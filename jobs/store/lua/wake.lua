-- WAKE audit -> {jobs told, 1: call again for more}. The leader, each second: tells the children of jobs that have ended,
-- and brings back those that were skipped because of a job that is tried again, as many as one call may. audit: 1 also
-- looks at some blocked jobs that nobody told.

-- Looks at blocked jobs that nobody told, such as when their parent was finished by a worker of an earlier version, or
-- that a coordinator of an earlier version took for broken: 32 from where the last call ended, none of them twice.
local function audit(t)
  local place = P .. 'sweep:blocked'
  local from = string.match(call('GET', place) or '', '^%d+$')
  local some = call('ZRANGEBYSCORE', P .. 'in:blocked', from and '(' .. from or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 32)
  for i = 1, #some, 2 do
    if K.is_full() then return call('SET', place, some[i - 1] or from or '0') end
    local j = job(some[i])
    if j and j.state == 'blocked' then
      if call('ZREM', P .. 'expiry', j.id) == 1 then call('SREM', P .. 'broken', j.id) end
      K.spend(1 + K.judge(j, t))
    elseif not j then
      call('ZREM', P .. 'in:blocked', some[i])
    end
  end
  if #some == 64 then call('SET', place, some[64]) else call('DEL', place) end
end

local t = now()
even_if_full()
K = K or ties()
local told, more = K.wake(t)
if ARGV[1] == '1' then audit(t) end
return { told, more and 1 or 0 }
