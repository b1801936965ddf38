-- Read after the prelude. What only a job needs that others wait for or hear of: docs/lease-protocol.md, Ties. The field
-- `ties` of a job has a letter for each: w, it belongs to a workflow.
local K = {}

local function has(j, letter) return string.find(j.ties, letter, 1, true) ~= nil end

-- The leader looks at workflows that are due. Redis may refuse a worker of an earlier version what is kept of ties: the
-- leader finds by itself what was not noted.
function K.note_workflow(j)
  local workflow = call('HGET', key(j.id), 'workflow')
  if workflow then redis.pcall('SADD', P .. 'workflowsdue', workflow) end
end

-- A job with ties has ended, or is tried again after its end.
function K.ended_or_returned(j, t)
  if has(j, 'w') then K.note_workflow(j) end
end
