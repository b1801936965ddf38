-- FINISH id digest result marks -> 1 | 0. Only in finishing, with that accumulator and no part left.
local id, seen, result, marks = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = now()
local j = job(id)
if not j or j.state ~= 'finishing' or call('LLEN', key(id, 'parts')) > 0 or digest(id, 0) ~= seen then return 0 end
even_if_full()
call('SET', key(id, 'result'), result)
keep_marks(marks)
unpend(j)
set_state(j, 'done', t)
if not is_program(j) then call('DEL', key(id, 'acc')) end -- rows and values of its units
return 1
