-- ADD_CODE digest token ttl most stands_for -> 1. A one-time login code of a token, for ttl seconds; beyond `most` its oldest ends.
local digest, ttl, most, stands_for = ARGV[1], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local codes = P .. 'codes:' .. ARGV[2]
call('SET', P .. 'login:' .. digest, stands_for, 'EX', ttl)
call('RPUSH', codes, digest)
call('EXPIRE', codes, ttl)
while call('LLEN', codes) > most do call('DEL', P .. 'login:' .. call('LPOP', codes)) end
return 1
