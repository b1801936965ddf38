-- The leader among the coordinators, and which libraries are in use.

-- LEAD candidate ttl -> 1 | 0. Every action of a leader is idempotent, so two at once for a moment do no harm. Each
-- coordinator calls it each second, which also notes in ct:libraries that its library is in use.
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

-- UNUSED_LIBRARIES ttl name ... -> those of these libraries that nobody has used for ttl ms. One that was never seen
-- counts as used now: whoever has loaded it is about to.
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
