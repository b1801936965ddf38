-- HOLD_ARTIFACT tenant id holder 1/0 -> 1 / 0: there is none. A holder, such as job:ID, keeps an artifact or lets it go.
local of, id, holder = ARGV[1], ARGV[2], ARGV[3]
if call('EXISTS', P .. 'artifact:' .. of .. ':' .. id) == 0 then return 0 end
even_if_full()
if ARGV[4] == '0' then
  let_go(of, id, holder, now())
  return 1
end
if call('EXISTS', P .. 'holders:' .. of .. ':' .. id) == 0 then return 0 end
call('SADD', P .. 'holders:' .. of .. ':' .. id, holder)
return 1
