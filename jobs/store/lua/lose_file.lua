-- LOSE_FILE tenant sha objects -> 1 / 0. The bytes of a file are gone: who asks whether it is there uploads it again.
local of, sha = ARGV[1], ARGV[2]
local size, references, objects = split_file(call('HGET', P .. 'files:' .. of, sha))
if not size or objects ~= ARGV[3] then return 0 end
call('HSET', P .. 'files:' .. of, sha, num(size) .. ':' .. num(references) .. ':')
disown(of, objects, now())
return 1
