-- ADD_PROFILE_PART id worker recording number most all bytes -> stored | wait: `most` of the profile are there, or `all` | gone |
-- size: it is not as long as the recording says.
local id, worker, rec, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local known = call('HMGET', P .. 'profile_recordings:' .. id, rec .. '|by', rec .. '|size', rec .. '|end')
local size = tonumber(known[2])
if call('HGET', P .. 'profile:' .. id, 'state') ~= 'collecting' or known[1] ~= worker or known[3] or not size then return 'gone' end
if #ARGV[7] ~= math.min(PROFILE_PART, size - number * PROFILE_PART) then return 'size' end
local own, others, field = 0, call('HKEYS', P .. 'profile_parts'), id .. '|' .. rec .. '|' .. num(number)
for _, other in ipairs(others) do
  if other == field then return 'stored' end
  if string.match(other, '^(.-)|') == id then own = own + 1 end
end
if own >= tonumber(ARGV[5]) or #others >= tonumber(ARGV[6]) then return 'wait' end
call('HSET', P .. 'profile_parts', field, ARGV[7])
return 'stored'
