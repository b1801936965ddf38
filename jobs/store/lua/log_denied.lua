-- LOG_DENIED calls(json) -> 1. Writes one entry of the audit log for each {tenant, token, source, reason, count}.
local t = now()
even_if_full()
for _, one in ipairs(cjson.decode(ARGV[1])) do log_change(t, one[1], one[2], 'denied', one[3], one[4], one[5]) end
return 1
