-- GPUs: claims of workers and runners on them.

local KERNEL_CLAIM_TTL_MS, PROGRAM_CLAIM_TTL_MS = SETTINGS.kernel_claim_ttl_ms, SETTINGS.program_claim_ttl_ms
--- How long a wish counts that is not repeated: of programs, of kernels, and of programs after one has ended.
local WANTED_MS, NEEDED_MS, LINGER_MS = 15000, 3000, 3000

-- CLAIM gpus(json) worker ttl priority -> {1, wanted, ''} | {0, '', worker|program|wanted} Takes or renews all of some
-- GPUs, by UUID, or none; ttl 0: gives them back. priority: of what is to be computed there; '': nothing yet. wanted:
-- the highest priority of programs that wait for one of them, for the worker that has it. Else who has one of them, or
-- wanted: programs wait for it that go first.
local function claim(args)
  local gpus, worker, ttl, class = cjson.decode(args[1]), args[2], tonumber(args[3]), args[4]
  local now_ms = now()
  local function is_runner(name) return call('HGET', PREFIX .. 'worker:' .. name, 'device') == 'runner' end
  local programs = is_runner(worker)
  if programs and not Queues.CLASSES[class] then class = 'normal' end
  local own, longest = Queues.CLASSES[class] or 5, programs and PROGRAM_CLAIM_TTL_MS or ttl
  local function place(gpu, what) return PREFIX .. 'gpu:' .. gpu .. (what and (':' .. what) or '') end

  local function wish(gpu, what, ms)
    call('ZADD', place(gpu, what), 'GT', decimal(now_ms + ms), class)
    call('PEXPIRE', place(gpu, what), WANTED_MS)
  end

  -- The highest priority of those that wait for a GPU, as a number and by name; 6 for none.
  local function most_urgent(gpu, what)
    local least, name = 6, ''
    local wishes = call('ZRANGE', place(gpu, what), 0, -1, 'WITHSCORES')
    for i = 1, #wishes, 2 do
      local left, at = wishes[i + 1] - now_ms, Queues.CLASSES[wishes[i]]
      if at and at < least and left > 0 and left <= WANTED_MS then least, name = at, wishes[i] end
    end
    return least, name
  end

  if ttl == 0 then
    local all = 1
    for _, gpu in ipairs(gpus) do
      if call('GET', place(gpu)) == worker then
        call('DEL', place(gpu))
        if programs then
          wish(gpu, 'wanted', LINGER_MS)
          call('SREM', PREFIX .. 'claimed:' .. worker, gpu)
        end
      else
        all = 0
      end
    end
    return { all, '', '' }
  end

  local why, fresh = '', {}
  for _, gpu in ipairs(gpus) do
    local owner = call('GET', place(gpu))
    if owner ~= worker then fresh[#fresh + 1] = gpu end
    if owner and owner ~= worker then
      local theirs = is_runner(owner)
      why = theirs and 'program' or 'worker'
      cap_expiry(place(gpu), theirs and PROGRAM_CLAIM_TTL_MS or KERNEL_CLAIM_TTL_MS)
    end
  end
  for _, gpu in ipairs(why == '' and fresh or {}) do
    local least = most_urgent(gpu, programs and 'needed' or 'wanted')
    if programs and least < own then why = 'worker' end
    if not programs and least <= own then why = 'wanted' end
  end
  if why ~= '' then
    for _, gpu in ipairs(fresh) do
      if programs then
        wish(gpu, 'wanted', WANTED_MS)
      elseif class ~= '' then
        wish(gpu, 'needed', NEEDED_MS)
      end
    end
    return { 0, '', why }
  end
  for _, gpu in ipairs(gpus) do call('SET', place(gpu), worker, 'PX', decimal(longest)) end
  if programs then
    for _, gpu in ipairs(fresh) do
      call('ZREM', place(gpu, 'wanted'), class)
      call('SADD', PREFIX .. 'claimed:' .. worker, gpu)
    end
    return { 1, '', '' }
  end
  local least, wanted = 6, ''
  for _, gpu in ipairs(gpus) do
    local at, name = most_urgent(gpu, 'wanted')
    if at < least then least, wanted = at, name end
  end
  return { 1, wanted, '' }
end

register({
  { 'claim', claim, 'allow-oom' },
})
