-- Read after every script. A job on which it failed is quarantined, and the script runs again as if it were not there.
for _ = 1, 100 do
  local ok, answer = pcall(script)
  if ok then return answer end
  local described = type(answer) == 'table'
  local culprit = described and answer.broken or in_hand
  if refused or not culprit then error(answer, 0) end
  if broken[culprit] then return 0 end
  rarely()
  quarantine(culprit, described and (answer.why or answer.err) or tostring(answer))
end
return redis.error_reply('more than 100 jobs are broken; call again')
