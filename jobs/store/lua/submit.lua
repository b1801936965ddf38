-- SUBMIT id idem digest queue est_ms name value ... -> {new|same|conflict, id}
local id, idem, digest, queue = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()
if idem ~= '' then
  local seen = call('GET', P .. 'idem:' .. idem)
  local known, body = string.match(seen or '', '^(.-)|(.*)$')
  if known and call('EXISTS', key(known)) == 1 then return { body == digest and 'same' or 'conflict', known } end
  call('SET', P .. 'idem:' .. idem, id .. '|' .. digest, 'EX', 86400)
end
if call('EXISTS', key(id)) == 1 then return { 'same', id } end
local seq = call('INCR', P .. 'seq')
call('HSET', key(id), 'state', 'queued', 'queue', queue, 'idem', idem, 'seq', num(seq), 'created', num(t), 'cursor', 0,
  'done', 0, 'accv', 0, 'holders', 0, 'lanes', 0, 'load', 0, unpack(ARGV, 5))
call('ZADD', P .. 'jobs', num(seq), id)
call('ZADD', P .. 'in:queued', num(seq), id)
local j = job(id)
account(j)
pend(j)
emit(j, 'queued', 'queue', queue)
-- Questions about jobs are reads.
if not string.find(queue, 'interactive', 1, true) then
  log_change(t, j.tenant, call('HGET', key(id), 'token') or '', 'submit', id, j.state)
end
return { 'new', id }
