-- GPUs: claims of workers and runners.

local KERNEL_CLAIM_TTL_MS, PROGRAM_CLAIM_TTL_MS = SETTINGS.kernel_claim_ttl_ms, SETTINGS.program_claim_ttl_ms
--- Milliseconds for which demand counts unless it is repeated: of programs, of kernels, and of programs after one has
--- ended.
local WANTED_MS, NEEDED_MS, LINGER_MS = 15000, 3000, 3000

-- CLAIM gpus(json) worker ttl priority -> {1, wanted, ''} | {0, '', worker|program|wanted}
-- Claim or renew all of these GPUs (UUIDs), or none. ttl 0 releases them. `priority` is the priority of the work for
-- the GPUs; '' if there is none yet.
-- For a GPU worker with the claim, `wanted` is the highest priority of the programs that wait for one of its GPUs. The
-- reason of a rejection is the type of the owner, or 'wanted' if waiting programs have precedence.
local function claim(args)
  local gpus, worker, ttl, class = cjson.decode(args[1]), args[2], tonumber(args[3]), args[4]
  local now_ms = now()
  local function is_runner(name) return call('HGET', PREFIX .. 'worker:' .. name, 'device') == 'runner' end
  local is_for_programs = is_runner(worker)
  if is_for_programs and not Queues.CLASSES[class] then class = 'normal' end
  local own_rank, claim_ttl = Queues.CLASSES[class] or 5, is_for_programs and PROGRAM_CLAIM_TTL_MS or ttl
  local function gpu_key(gpu, what) return PREFIX .. 'gpu:' .. gpu .. (what and (':' .. what) or '') end

  local function note_demand(gpu, what, ms)
    call('ZADD', gpu_key(gpu, what), 'GT', decimal(now_ms + ms), class)
    call('PEXPIRE', gpu_key(gpu, what), WANTED_MS)
  end

  -- Return the rank and name of the highest priority that waits for a GPU; 6 if none.
  local function find_most_urgent(gpu, what)
    local highest_rank, name = 6, ''
    local wishes = call('ZRANGE', gpu_key(gpu, what), 0, -1, 'WITHSCORES')
    for i = 1, #wishes, 2 do
      local left, at = wishes[i + 1] - now_ms, Queues.CLASSES[wishes[i]]
      if at and at < highest_rank and left > 0 and left <= WANTED_MS then highest_rank, name = at, wishes[i] end
    end
    return highest_rank, name
  end

  if ttl == 0 then
    local all = 1
    for _, gpu in ipairs(gpus) do
      if call('GET', gpu_key(gpu)) == worker then
        call('DEL', gpu_key(gpu))
        if is_for_programs then
          note_demand(gpu, 'wanted', LINGER_MS)
          call('SREM', PREFIX .. 'claimed:' .. worker, gpu)
        end
      else
        all = 0
      end
    end
    return { all, '', '' }
  end

  local reason, unclaimed = '', {}
  for _, gpu in ipairs(gpus) do
    local owner = call('GET', gpu_key(gpu))
    if owner ~= worker then unclaimed[#unclaimed + 1] = gpu end
    if owner and owner ~= worker then
      local is_owner_runner = is_runner(owner)
      reason = is_owner_runner and 'program' or 'worker'
      cap_expiry(gpu_key(gpu), is_owner_runner and PROGRAM_CLAIM_TTL_MS or KERNEL_CLAIM_TTL_MS)
    end
  end
  for _, gpu in ipairs(reason == '' and unclaimed or {}) do
    local highest_rank = find_most_urgent(gpu, is_for_programs and 'needed' or 'wanted')
    if is_for_programs and highest_rank < own_rank then reason = 'worker' end
    if not is_for_programs and highest_rank <= own_rank then reason = 'wanted' end
  end
  if reason ~= '' then
    for _, gpu in ipairs(unclaimed) do
      if is_for_programs then
        note_demand(gpu, 'wanted', WANTED_MS)
      elseif class ~= '' then
        note_demand(gpu, 'needed', NEEDED_MS)
      end
    end
    return { 0, '', reason }
  end
  for _, gpu in ipairs(gpus) do call('SET', gpu_key(gpu), worker, 'PX', decimal(claim_ttl)) end
  if is_for_programs then
    for _, gpu in ipairs(unclaimed) do
      call('ZREM', gpu_key(gpu, 'wanted'), class)
      call('SADD', PREFIX .. 'claimed:' .. worker, gpu)
    end
    return { 1, '', '' }
  end
  local highest_rank, wanted = 6, ''
  for _, gpu in ipairs(gpus) do
    local at, name = find_most_urgent(gpu, 'wanted')
    if at < highest_rank then highest_rank, wanted = at, name end
  end
  return { 1, wanted, '' }
end

register({
  { 'claim', claim, 'allow-oom' },
})
