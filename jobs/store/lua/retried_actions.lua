-- RETRIED_ACTIONS id attempt key ... -> 1 / 0: the workflow is in another attempt. Jobs of these actions have been tried again.
if not workflow_state(ARGV[1], ARGV[2]) then return 0 end
even_if_full()
for first = 3, #ARGV, 1000 do
  call('SREM', P .. 'workflowretries:' .. ARGV[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return 1
