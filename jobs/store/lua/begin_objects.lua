-- BEGIN_OBJECTS tenant ms object ... -> 1. Objects that are about to be written: whose they become must be said within ms.
for i = 3, #ARGV do disown(ARGV[1], ARGV[i], now() + tonumber(ARGV[2])) end
return 1
