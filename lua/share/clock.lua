-- share/clock: times, numbers, and how long keys live. weir puts it before each script that needs it (script.rs of the Redis edge), like
-- the other files of this folder.

-- A whole number as it is written: exact up to 2^53, and never with an exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- The server's clock in ms since 1970.
local function server_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Has a key live for so long at the least, in ms. One without an end gets this one.
local function keep_for(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, whole(ms))
  end
end

