-- NOTE_SERVICE id field value ... -> 1 / 0: there is none.
local k = P .. 'service:' .. ARGV[1]
if call('EXISTS', k) == 0 then return 0 end
call('HSET', k, unpack(ARGV, 2))
return 1
