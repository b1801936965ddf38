-- FORGET_ACTIONS id attempt key ... -> 1 / 0: the workflow runs no more, or anew. What comes of these actions begins anew: jobs
-- of theirs that cannot go on stay by themselves. Of one that is being cancelled: with a retry.
local id, attempt = ARGV[1], ARGV[2]
local state = workflow_state(id, attempt)
if state ~= 'running' and state ~= 'waiting' and state ~= 'cancelling' then return 0 end
even_if_full()
forget_actions(id, call('HGET', P .. 'workflow:' .. id, 'tenant'), ARGV, 3, #ARGV)
return 1
