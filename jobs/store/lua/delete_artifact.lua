-- DELETE_ARTIFACT tenant id tenant token -> {ok} | {missing} | {held, holder}. With its names; not while anything else holds it.
local of, id, t = ARGV[1], ARGV[2], now()
if call('EXISTS', P .. 'holders:' .. of .. ':' .. id) == 0 then return { 'missing' } end
even_if_full()
local holders = call('SMEMBERS', P .. 'holders:' .. of .. ':' .. id)
for _, holder in ipairs(holders) do
  if holder ~= 'kept' and string.sub(holder, 1, 5) ~= 'name:' then return { 'held', holder } end
end
for _, holder in ipairs(holders) do
  if holder ~= 'kept' then call('HDEL', P .. 'names:' .. of, string.sub(holder, 6)) end
  let_go(of, id, holder, t)
end
log_change(t, ARGV[3], ARGV[4], 'delete artifact', of .. '/' .. id, 'ok')
return { 'ok' }
