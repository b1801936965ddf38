-- LEAD candidate ttl -> 1 | 0. Every action of a leader is idempotent, so two at once for a moment do no harm.
local leader = call('GET', P .. 'leader')
if leader and leader ~= ARGV[1] and call('PTTL', P .. 'leader') > 0 then
  curtail(P .. 'leader', ARGV[2])
  return 0
end
even_if_full()
call('SET', P .. 'leader', ARGV[1], 'PX', ARGV[2])
return 1
