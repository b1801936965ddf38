-- CLAIM_BY_HAND id run lease -> ok | same: that run was made | busy: another is being made. A run that somebody asked for,
-- for `lease` ms, until NOTE_BY_HAND.
local id, run, t = ARGV[1], ARGV[2], now()
local k = P .. 'schedule:' .. id
local other, till = string.match(call('HGET', k, 'hand') or '', '^(.*)|(%d+)$')
if other == run and till == '0' then return 'same' end
if call('EXISTS', k) == 0 then return 'ok' end -- it was deleted meanwhile, and notes nothing
if other and tonumber(till) > t and tonumber(till) <= t + ARGV[3] then return 'busy' end
call('HSET', k, 'hand', run .. '|' .. num(t + ARGV[3]))
return 'ok'
