-- LEAVE worker -> 1
end_slot(ARGV[1])
park(ARGV[1], now())
return 1
