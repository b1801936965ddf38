-- Return the time of Redis in milliseconds since 1970. Tests replace this file.
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
