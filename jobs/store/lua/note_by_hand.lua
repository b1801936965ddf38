-- NOTE_BY_HAND id run job -> 1 / 0: it is noted already, or claimed by nobody. job: what the run submitted; empty: nothing.
local id, run, j = ARGV[1], ARGV[2], ARGV[3]
local k = P .. 'schedule:' .. id
local other, till = string.match(call('HGET', k, 'hand') or '', '^(.*)|(%d+)$')
if other ~= run or till == '0' then return 0 end
if j == '' then
  call('HDEL', k, 'hand')
  return 1
end
call('HSET', k, 'hand', run .. '|0', 'last', num(math.floor(now() / 1000)), 'last_job', j, 'said', 'submitted by hand')
call('HINCRBY', k, 'submitted', 1)
return 1
