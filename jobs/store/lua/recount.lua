-- RECOUNT tenant id ... -> 1. Makes the sizes of these jobs what is stored of them, for tenants with a cap on stored bytes.
-- tenant: where the ids come from its own sizes, of which some may be of jobs that are gone; '' where not. Without any
-- id: makes the tenant's sum that of its sizes.
if not by_tenant() then return 1 end
even_if_full()
for i = 2, #ARGV do T.weigh_anew(ARGV[1], ARGV[i]) end
if #ARGV == 1 then T.add_up(ARGV[1]) end
return 1
