-- HOLD worker slot_ttl -> 1 | 0 when the slot was reaped
if not call('ZSCORE', P .. 'slots', ARGV[1]) then return 0 end
even_if_full()
call('ZADD', P .. 'slots', num(now() + tonumber(ARGV[2])), ARGV[1])
return 1
