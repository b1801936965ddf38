-- DELETE id -> {ok, state} | {conflict, state} | {missing}
local id = ARGV[1]
local j = job(id)
if not j and call('SISMEMBER', P .. 'broken', id) == 1 then
  purge(id)
  return { 'ok', 'broken' }
end
if not j then return { 'missing' } end
if not TERMINAL[j.state] then return { 'conflict', j.state } end
purge(j.id)
return { 'ok', j.state }
