-- SETTLE_RECORDING id recording how sha256 most -> kept | lost | again. kept: its file is whole. again: its bytes were not
-- those that it said; it is sent anew, `most` times, then it is lost.
local rows, rec, how = P .. 'profile_recordings:' .. ARGV[1], ARGV[2], ARGV[3]
if call('HGET', rows, rec .. '|sha') ~= ARGV[4] then return 'again' end
even_if_full()
if how == 'again' and call('HINCRBY', rows, rec .. '|tries', 1) >= tonumber(ARGV[5]) then how = 'lost' end
if how == 'again' then call('HSET', rows, rec .. '|parts', '', rec .. '|sha', '') else call('HSET', rows, rec .. '|end', how) end
return how
