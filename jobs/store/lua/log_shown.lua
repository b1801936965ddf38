-- LOG_SHOWN what subject tenant token -> 1. Writes into the audit log that something secret was shown.
local t = now()
log_change(t, ARGV[3], ARGV[4], ARGV[1], ARGV[2], 'ok')
return 1
