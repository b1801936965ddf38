-- TAKE_WORKFLOWS most -> ids. Workflows at which the leader looks next: until it has, they are in ct:workflowstaken, where
-- the next leader finds those of one that died.
even_if_full()
local some = call('SPOP', P .. 'workflowsdue', ARGV[1])
if #some > 0 then call('SADD', P .. 'workflowstaken', unpack(some)) end
return some
