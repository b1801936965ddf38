-- FINISH id version result marks -> 1 | 0. Only in finishing, with that accumulator and no part left.
local id, version, result, marks = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()
local j = job(id)
if not j or j.state ~= 'finishing' or num(j.accv) ~= version or call('LLEN', key(id, 'parts')) > 0 then return 0 end
call('SET', key(id, 'result'), result)
keep_marks(marks)
unpend(j)
set_state(j, 'done', t)
call('DEL', key(id, 'acc'))
return 1
