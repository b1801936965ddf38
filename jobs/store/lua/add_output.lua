-- ADD_OUTPUT id token unit attempt offset run data -> stale: no such lease of this unit | alone: nobody follows it | kept |
-- dropped: the job writes too fast. Live lines of a program, for those who follow it: at most OUTPUT_ROOM bytes of a job,
-- for a minute.
local OUTPUT_ROOM, OUTPUT_RATE, OUTPUT_ENTRY, OUTPUT_MS = 262144, 65536, 100, 60000
local id, unit, data = ARGV[1], tonumber(ARGV[3]), ARGV[7]
local t, l = now(), lease_of(id, ARGV[2])
if not l or unit < l.lo or unit >= l.hi then return 'stale' end
local of = call('HGET', key(id), 'tenant') or 'default'
local followed = call('ZSCORE', P .. 'followed', of .. '/' .. id .. '|' .. num(unit))
if not followed or tonumber(followed) <= t then return 'alone' end

local lines, about = P .. 'output:' .. id, P .. 'outputs:' .. id
local known = call('HMGET', about, 'room', 'at', 'bytes')
local room, at, bytes = tonumber(known[1]) or OUTPUT_ROOM, tonumber(known[2]) or t, tonumber(known[3]) or 0
room = math.min(OUTPUT_ROOM, room + math.floor(math.max(0, t - at) * OUTPUT_RATE / 1000))
local cost = #data + OUTPUT_ENTRY
if cost > room then
  call('HSET', about, 'room', num(room), 'at', num(t))
  call('PEXPIRE', about, OUTPUT_MS)
  return 'dropped'
end
call('XADD', lines, '*', 'unit', num(unit), 'attempt', ARGV[4], 'offset', ARGV[5], 'run', ARGV[6], 'data', data)
bytes = bytes + cost
while bytes > OUTPUT_ROOM do
  local first = call('XRANGE', lines, '-', '+', 'COUNT', 1)[1]
  if not first then break end
  call('XDEL', lines, first[1])
  bytes = bytes - #first[2][10] - OUTPUT_ENTRY
end
call('HSET', about, 'room', num(room - cost), 'at', num(t), 'bytes', num(bytes))
call('PEXPIRE', lines, OUTPUT_MS)
call('PEXPIRE', about, OUTPUT_MS)
return 'kept'
