-- create: says what a keyspace is, unless it was said before.
--
-- The first caller's fields are written; every caller gets the fields that are there.
--
-- KEYS  [1]     the keyspace's meta hash
-- ARGV  [1..]   fields and values, in pairs
-- Reply: all fields and values of the hash, in pairs.
--
-- Example: EVALSHA <sha> 1 weir:{weir}:meta format weir/5 state creating  ->  format, weir/5, state, creating

if #KEYS ~= 1 or #ARGV == 0 or #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR create takes 1 key and pairs of arguments')
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return redis.call('HGETALL', KEYS[1])
