-- GATHER id start limit bytes -> {done, spec, accumulator, more, part ...}. The accumulator, where start is 0, and from that part
-- on as many as `limit`, and as fit into the bytes, at least one. more: 1 where others follow within `limit`.
local id, start, limit, left = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local known = call('HMGET', key(id), 'done', 'spec')
local accumulator = start == 0 and call('GET', key(id, 'acc'))
local reply = { known[1] or '0', known[2], accumulator, 0 }
left = left - #(accumulator or '')
for at = start, start + limit - 1 do
  local part = call('LINDEX', key(id, 'parts'), num(at))
  if not part then break end
  left = left - #part
  if left < 0 and at > start then
    reply[4] = 1
    break
  end
  reply[#reply + 1] = part
end
return reply
