-- DELETE id -> {ok, state} | {conflict, state} | {missing}
local j = job(ARGV[1])
if not j then return { 'missing' } end
if not TERMINAL[j.state] then return { 'conflict', j.state } end
purge(j.id)
return { 'ok', j.state }
