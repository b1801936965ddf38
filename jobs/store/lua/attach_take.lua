-- ATTACH_TAKE id job token unit -> about(json) | '': it is over, or not for this unit of this lease. Its runner begins it.
local a, t = attached(ARGV[1]), now()
local l = lease_of(ARGV[2], ARGV[3])
local unit = tonumber(ARGV[4])
if not a or a.state == 'ended' or not l or a.job ~= ARGV[2] or tonumber(a.unit) ~= unit or unit < l.lo or unit >= l.hi then return '' end
if a.state == 'running' then return a.lease == ARGV[3] and a.about or '' end
call('HSET', P .. 'attachment:' .. a.id, 'state', 'running', 'lease', ARGV[3], 'taken', num(t), 'heard', num(t))
call('PEXPIRE', P .. 'attachment:' .. a.id, ATTACHED_LOGGED)
log_change(t, a.tenant, a.owner, 'attach', a.job .. '/' .. a.unit, 'on ' .. (string.match(ARGV[3], '^(.*)/') or ''))
wake_attached(a.id)
return a.about
