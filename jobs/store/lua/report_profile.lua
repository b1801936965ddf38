-- REPORT_PROFILE id worker ttl silent most devices device ... {recording row size sha256} ... -> {state, now, {device ...},
-- {{recording, wanted} ...}}. Claims devices for `ttl` ms: those that are this worker's come back, as far as the profile records.
-- wanted: the number of a part | wait | kept | lost | other: a worker that was heard within `silent` ms has this recording |
-- full: there are `most`.
local id, worker, ttl, silent, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local k, claims, rows = P .. 'profile:' .. id, P .. 'profile_claims:' .. id, P .. 'profile_recordings:' .. id
local t, first = now(), 7 + ARGV[6]
local state = call('HGET', k, 'state')
if not state then return { 'gone', num(t), {}, {} } end
local mine, told = {}, {}
if state == 'recording' then
  for i = 7, first - 1 do
    local by, till = string.match(call('HGET', claims, ARGV[i]) or '', '^(.*)|(%d+)$')
    -- A clock that was set back leaves no claim for longer than one lasts.
    if not by or by == worker or tonumber(till) <= t or tonumber(till) > t + ttl then
      call('HSET', claims, ARGV[i], worker .. '|' .. num(t + ttl))
      mine[#mine + 1] = ARGV[i]
    end
  end
end
for i = first, #ARGV, 4 do
  local rec, size = ARGV[i], tonumber(ARGV[i + 2])
  local known = call('HMGET', rows, rec .. '|by', rec .. '|at', rec .. '|end', rec .. '|sha', rec .. '|parts')
  local wanted = 'wait'
  if known[3] then
    wanted = known[3]
  elseif known[1] and known[1] ~= worker and math.abs(t - (tonumber(known[2]) or 0)) < silent then
    wanted = 'other'
  elseif not known[1] and call('HLEN', rows) >= 5 * most then
    wanted = 'full'
  else
    call('HSET', rows, rec, ARGV[i + 1], rec .. '|by', worker, rec .. '|at', num(t))
    if size > 0 then
      if state == 'done' then
        state = 'collecting'
        call('HSET', k, 'collecting', num(t))
        turn_profile(id, state)
      end
      if known[4] ~= ARGV[i + 3] then
        call('HSET', rows, rec .. '|sha', ARGV[i + 3], rec .. '|size', num(size), rec .. '|parts', '')
        known[5] = ''
      end
      for number = 0, math.ceil(size / PROFILE_PART) - 1 do
        if not string.find(known[5] or '', ',' .. num(number) .. ',', 1, true) then
          if call('HEXISTS', P .. 'profile_parts', id .. '|' .. rec .. '|' .. num(number)) == 0 then
            wanted = num(number)
            break
          end
        end
      end
    end
  end
  told[#told + 1] = { rec, wanted }
end
return { state, num(t), mine, told }
