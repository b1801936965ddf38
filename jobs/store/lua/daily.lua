-- DAILY tenant ... -> {milliseconds until the day turns, caps of each tenant as what=used/most,what=used/most}. Reads only.
local t = now()
local answer = { num(DAY_MS - t % DAY_MS) }
for _, name in ipairs(ARGV) do
  local rows, caps = {}, by_tenant() and T.caps(name)
  for what, most in pairs(caps and T.share_of(name).caps or {}) do
    local used = what == 'stored_bytes' and number_at('HGET', P .. 'stored', name) or most - caps.left(name, what, t)
    rows[#rows + 1] = what .. '=' .. num(used) .. '/' .. num(most)
  end
  answer[#answer + 1] = table.concat(rows, ',')
end
return answer
