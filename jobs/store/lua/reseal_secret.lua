-- RESEAL_SECRET of name before key sealed tenant token -> 1 / 0. The same value under another key, unless somebody has set the secret since.
local of, name, before, key_id, sealed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if call('HGET', P .. 'secret:' .. of, name) ~= before then return 0 end
local changed = string.match(call('HGET', P .. 'secrets:' .. of, name) or '', '|(%d+)$') or '0'
call('HSET', P .. 'secrets:' .. of, name, key_id .. '|' .. changed)
call('HSET', P .. 'secret:' .. of, name, sealed)
log_change(now(), ARGV[6], ARGV[7], 'rotate secret', of .. '/' .. name, 'key ' .. key_id)
return 1
