-- DELETE_ARTIFACT tenant id tenant token beside name -> {ok} | {missing} | {held, holder}. With its names and places; not while
-- anything else holds it, but for jobs where beside is 1: those keep it, nameless, until they go. Where it has the name
-- that is given and others besides, that name alone goes.
local of, id, t = ARGV[1], ARGV[2], now()
local place = P .. 'holders:' .. of .. ':' .. id
if call('EXISTS', place) == 0 then return { 'missing' } end
even_if_full()
local holders, named, goes = call('SMEMBERS', place), 0, {}
for _, holder in ipairs(holders) do
  if string.sub(holder, 1, 5) == 'name:' then named = named + 1 end
end
if named > 1 and ARGV[6] ~= '' and call('HGET', P .. 'names:' .. of, ARGV[6]) == id then
  call('HDEL', P .. 'names:' .. of, ARGV[6])
  let_go(of, id, 'name:' .. ARGV[6], t)
  log_change(t, ARGV[3], ARGV[4], 'delete artifact', of .. '/' .. id, 'the name ' .. ARGV[6])
  return { 'ok' }
end
for _, holder in ipairs(holders) do
  if holder == 'kept' or string.sub(holder, 1, 5) == 'name:' or string.sub(holder, 1, 6) == 'place:' then
    goes[#goes + 1] = holder
  elseif ARGV[5] ~= '1' or string.sub(holder, 1, 4) ~= 'job:' then
    return { 'held', holder }
  end
end
for _, holder in ipairs(goes) do
  if string.sub(holder, 1, 5) == 'name:' then call('HDEL', P .. 'names:' .. of, string.sub(holder, 6)) end
  let_go(of, id, holder, t)
end
log_change(t, ARGV[3], ARGV[4], 'delete artifact', of .. '/' .. id, 'ok')
return { 'ok' }
