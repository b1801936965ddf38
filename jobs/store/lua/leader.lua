-- Leadership among the coordinators, and use of function libraries.

-- LEAD candidate ttl -> 1 | 0
-- Acquire or renew the leadership. Two leaders for a short time do no harm, because all actions of a leader are
-- idempotent. Every coordinator calls this every second, which also records the use of its library in ct:libraries.
local function lead(args)
  call('ZADD', PREFIX .. 'libraries', decimal(now()), LIBRARY)
  local leader = call('GET', PREFIX .. 'leader')
  if leader and leader ~= args[1] and call('PTTL', PREFIX .. 'leader') > 0 then
    cap_expiry(PREFIX .. 'leader', args[2])
    return 0
  end
  call('SET', PREFIX .. 'leader', args[1], 'PX', args[2])
  return 1
end

-- UNUSED_LIBRARIES ttl name ... -> libraries among these that were not used for `ttl` ms
-- An unknown library counts as used now, because a process may have just loaded it.
local function unused_libraries(args)
  local libraries, now_ms, ttl, is_used, unused = PREFIX .. 'libraries', now(), tonumber(args[1]), {}, {}
  cap_scores(libraries, now_ms, 0)
  for _, worker in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'nodes', decimal(now_ms - ttl), '+inf')) do
    local name = call('HGET', PREFIX .. 'worker:' .. worker, 'library')
    if name then is_used[name] = true end
  end
  for i = 2, #args do
    call('ZADD', libraries, 'NX', decimal(now_ms), args[i])
    local seen = tonumber(call('ZSCORE', libraries, args[i]))
    if seen < now_ms - ttl and not is_used[args[i]] then
      unused[#unused + 1] = args[i]
      call('ZREM', libraries, args[i])
    end
  end
  return unused
end

register({
  { 'lead', lead, 'allow-oom' },
  { 'unused_libraries', unused_libraries, 'allow-oom' },
})
