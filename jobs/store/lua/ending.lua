-- Read after every script. A job on which it failed is quarantined, and the script runs again as if it were not there.
local function outcome(...)
  for _ = 1, 100 do
    local ok, answer = pcall(script, ...)
    if ok then return answer end
    local described = type(answer) == 'table'
    local culprit = described and answer.broken or in_hand
    if refused or not culprit then error(answer, 0) end
    if broken[culprit] then return 0 end
    rarely()
    quarantine(culprit, described and (answer.why or answer.err) or tostring(answer))
  end
  return redis.error_reply('more than 100 jobs are broken; call again')
end

if ARGV[1] ~= '@CALLS@' then return outcome(ARGV) end
-- Several calls: of each, the number of its arguments and those. What a script makes anew at each call is made once.
local replies, at = {}, 2
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  refused, in_hand, kept = false, nil, {}
  local ok, answer = pcall(outcome, { unpack(ARGV, at + 1, last) })
  if not ok then answer = redis.error_reply(type(answer) == 'table' and answer.err or tostring(answer)) end
  replies[#replies + 1] = answer
  at = last + 1
end
return replies
