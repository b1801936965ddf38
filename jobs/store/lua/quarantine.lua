-- QUARANTINE id why -> 1. What is stored of the job cannot be read outside the scripts.
rarely()
quarantine(ARGV[1], ARGV[2])
return 1
