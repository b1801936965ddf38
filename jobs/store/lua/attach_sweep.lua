-- ATTACH_SWEEP -> how many last. The leader, each second: ends attachments whose askers have not been heard for 30 s.
local t = now()
even_if_full()
end_silent_attachments(t)
return call('ZCARD', P .. 'attachments')
