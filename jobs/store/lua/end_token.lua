-- END_TOKEN tokens|sessions id -> 1 / 0. A session dies with its token: it is looked up with it.
local index, id = ARGV[1], ARGV[2]
even_if_full()
local was = call('ZREM', P .. index, id)
was = was + call('DEL', index == 'tokens' and P .. 'token:' .. id or P .. 'session:' .. id)
call('INCR', P .. 'tokenset')
return was > 0 and 1 or 0
