-- Secrets: values that only coordinators can decrypt.

-- SET_SECRET tenant name key sealed most caller token -> new | changed | full | missing: the tenant is not registered
local function set_secret(args)
  local tenant, name, key_id, sealed, most = args[1], args[2], args[3], args[4], tonumber(args[5])
  if tenant ~= 'default' and not call('ZSCORE', PREFIX .. 'tenants', tenant) then return 'missing' end
  local now_ms = now()
  local new = call('HEXISTS', PREFIX .. 'secrets:' .. tenant, name) == 0
  if new and call('HLEN', PREFIX .. 'secrets:' .. tenant) >= most then return 'full' end
  call('HSET', PREFIX .. 'secrets:' .. tenant, name, key_id .. '|' .. decimal(now_ms))
  call('HSET', PREFIX .. 'secret:' .. tenant, name, sealed)
  Audit.log(now_ms, args[6], args[7], 'set secret', tenant .. '/' .. name, new and 'new' or 'changed')
  return new and 'new' or 'changed'
end

-- RESEAL_SECRET tenant name before key sealed caller token -> 1 / 0: the secret has changed
-- Store the same value encrypted with another key.
local function reseal_secret(args)
  local tenant, name, before, key_id, sealed = args[1], args[2], args[3], args[4], args[5]
  if call('HGET', PREFIX .. 'secret:' .. tenant, name) ~= before then return 0 end
  local changed = string.match(call('HGET', PREFIX .. 'secrets:' .. tenant, name) or '', '|(%d+)$') or '0'
  call('HSET', PREFIX .. 'secrets:' .. tenant, name, key_id .. '|' .. changed)
  call('HSET', PREFIX .. 'secret:' .. tenant, name, sealed)
  Audit.log(now(), args[6], args[7], 'rotate secret', tenant .. '/' .. name, 'key ' .. key_id)
  return 1
end

-- DELETE_SECRET tenant name caller token -> 1 / 0
local function delete_secret(args)
  local tenant, name = args[1], args[2]
  local was = call('HDEL', PREFIX .. 'secrets:' .. tenant, name) + call('HDEL', PREFIX .. 'secret:' .. tenant, name)
  if was == 0 then return 0 end
  Audit.log(now(), args[3], args[4], 'delete secret', tenant .. '/' .. name, 'ok')
  return 1
end

register({
  { 'delete_secret', delete_secret, 'allow-oom' },
  { 'reseal_secret', reseal_secret },
  { 'set_secret', set_secret },
})
