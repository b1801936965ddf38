-- LEAVE worker -> 1
park(ARGV[1], now())
return 1
