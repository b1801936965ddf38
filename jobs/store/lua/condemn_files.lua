-- CONDEMN_FILES most -> objects, as tenant/name, whose bytes are to be deleted now. Of loose files, of uploads and of unowned
-- objects, those whose time is over lose their place: at most `most` of each a call.
local t, most = now(), tonumber(ARGV[1])
even_if_full()
local function due(zset) return call('ZRANGEBYSCORE', P .. zset, '-inf', num(t), 'LIMIT', 0, most) end
for _, member in ipairs(due('loose')) do
  local of, sha = string.match(member, '^(.-)/(.*)$')
  if of then drop_loose_file(of, sha, t) else call('ZREM', P .. 'loose', member) end
end
for _, member in ipairs(due('uploads')) do
  local of, sha = string.match(member, '^(.-)/(.*)$')
  local fields = of and call('HGETALL', P .. 'parts:' .. of .. ':' .. sha) or {}
  for i = 1, #fields, 2 do
    if fields[i] == 'size' then count_files(of, 'loose', -1, -tonumber(fields[i + 1])) else disown(of, fields[i + 1], t) end
  end
  if of then call('DEL', P .. 'parts:' .. of .. ':' .. sha) end
  call('ZREM', P .. 'uploads', member)
end
for _, member in ipairs(due('unowned')) do
  call('ZREM', P .. 'unowned', member)
  call('SADD', P .. 'doomed', member)
end
return call('SRANDMEMBER', P .. 'doomed', num(most))
