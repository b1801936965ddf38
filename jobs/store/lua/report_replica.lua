-- REPORT_REPLICA job token ttl field value ... -> 1 / 0: the lease is another's. Who holds the lease says where it answers.
local id, token, ttl, t = ARGV[1], ARGV[2], ARGV[3], now()
if not call('HGET', key(id, 'lease'), token) then return 0 end
local k, given = P .. 'replica:' .. id, {}
for i = 4, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local known = call('HMGET', k, 'state', 'since', 'token')
local same = known[1] == given.state and known[3] == token
call('HSET', k, 'token', token, 'since', same and known[2] or num(t), unpack(ARGV, 4))
call('PEXPIRE', k, ttl)
return 1
