-- RECORD_ACTION id attempt key record -> 1 / 0: what came of an action that is no job. 0: the workflow runs no more, or anew.
local id, attempt, name = ARGV[1], ARGV[2], ARGV[3]
local known = call('HMGET', P .. 'workflow:' .. id, 'state', 'attempt', 'tenant')
if (known[1] ~= 'running' and known[1] ~= 'waiting') or known[2] ~= attempt then return 0 end
if call('HEXISTS', P .. 'workflowjobs:' .. id, name) == 1 then return 0 end
if call('HSETNX', P .. 'workflowrecords:' .. id, name, ARGV[4]) == 1 then
  grow_workflow(id, known[3], #ARGV[4])
end
return 1
