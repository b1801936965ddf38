-- DELETE_SECRET of name tenant token -> 1 / 0
local of, name = ARGV[1], ARGV[2]
even_if_full()
local was = call('HDEL', P .. 'secrets:' .. of, name) + call('HDEL', P .. 'secret:' .. of, name)
if was == 0 then return 0 end
log_change(now(), ARGV[3], ARGV[4], 'delete secret', of .. '/' .. name, 'ok')
return 1
