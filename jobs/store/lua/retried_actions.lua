-- RETRIED_ACTIONS id attempt key ... -> 1 / 0: the workflow is in another attempt. Jobs of these actions have been tried again.
if not workflow_state(ARGV[1], ARGV[2]) then return 0 end
even_if_full()
call('SREM', P .. 'workflowretries:' .. ARGV[1], unpack(ARGV, 3))
return 1
