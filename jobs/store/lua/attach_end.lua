-- ATTACH_END id who exit reason -> 1 | 0: no such attachment of theirs. Its asker leaves, or its shell has ended.
local a = attached(ARGV[1])
if not a or (ARGV[2] ~= a.owner and ARGV[2] ~= a.lease) then return 0 end
even_if_full()
end_attached(a, now(), ARGV[3], ARGV[4])
return 1
