-- KEEP_PROFILE_PART id recording number sha256 -> 1 / 0: it is to be sent anew. The leader has stored its bytes.
local id, rec, number = ARGV[1], ARGV[2], ARGV[3]
local rows = P .. 'profile_recordings:' .. id
local known = call('HMGET', rows, rec .. '|sha', rec .. '|parts', rec .. '|size')
even_if_full()
call('HDEL', P .. 'profile_parts', id .. '|' .. rec .. '|' .. number)
if known[1] ~= ARGV[4] or not known[3] then return 0 end
local parts = known[2] or ''
if not string.find(parts, ',' .. number .. ',', 1, true) then call('HSET', rows, rec .. '|parts', parts .. ',' .. number .. ',') end
return 1
