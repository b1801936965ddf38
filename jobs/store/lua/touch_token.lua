-- TOUCH_TOKEN id -> 1 / 0
local id = ARGV[1]
local t = now()
if call('EXISTS', P .. 'token:' .. id) == 0 then return 0 end
call('HSET', P .. 'token:' .. id, 'used', num(t))
return 1
