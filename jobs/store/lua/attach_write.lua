-- ATTACH_WRITE id in|out who offset data stream closed size -> {state, upto} | {}: no such attachment of theirs. Adds what
-- the asker typed, or what the shell wrote, from a place on; as much as there is room for, up to `upto`. closed 1: no more
-- comes. size: of the terminal, '' for as it was.
local id, side, who, offset, data = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local a, t = attached(id), now()
if not a or who ~= (side == 'in' and a.owner or a.lease) then return {} end
local upto, read = tonumber(a[side .. '_end'] or 0), tonumber(a[side .. '_read'] or 0)
if a.state == 'ended' or offset > upto then return { a.state, num(upto) } end
local k, bytes, more, set = P .. 'attachment:' .. id, attached_bytes(side, id), '', {}
if side == 'in' then keep_attached(a, t) else set = { 'heard', num(t) } end
local room = ATTACHED_BYTES[side] - (upto - read)
if call('XLEN', bytes) >= ATTACHED_ENTRIES then room = 0 end
more = string.sub(data, upto - offset + 1, upto - offset + math.max(0, room))
if #more > 0 then
  upto = upto + #more
  call('XADD', bytes, num(upto) .. '-0', 'stream', ARGV[6], 'data', more)
  call('PEXPIRE', bytes, ATTACHED_MS + ATTACHED_KEPT)
end
local whole = upto >= offset + #data
set[#set + 1], set[#set + 2] = side .. '_end', num(upto)
set[#set + 1], set[#set + 2] = side .. '_full', whole and '' or '1'
if whole and ARGV[7] == '1' then set[#set + 1], set[#set + 2] = side .. '_closed', '1' end
if ARGV[8] ~= '' then set[#set + 1], set[#set + 2] = 'size', ARGV[8] end
call('HSET', k, unpack(set))
if #more > 0 or ARGV[7] == '1' or ARGV[8] ~= (a.size or '') then wake_attached(id) end
return { a.state, num(upto) }
