-- ASIDE key -> 1 | 0. Puts a key away that is not of a job and holds what it must not.
if redis.call('EXISTS', ARGV[1]) == 0 or string.find(ARGV[1], '^ct:job:') then return 0 end
rarely()
put_aside(ARGV[1])
return 1
