-- READ commands(json) -> their replies. Reads at one moment, as MULTI would; that a full Redis refuses, even of reads.
local replies = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do replies[i] = redis.pcall(unpack(command)) end
return replies
