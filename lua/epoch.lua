#!lua
-- epoch: changes a shard's epoch, where it is what the caller thinks.
--
-- KEYS  [1]     the shard's epoch
--       [2]     the shard's marks of refunds, a hash
-- ARGV  [1]     what the epoch has to be; "*": anything, or gone
--       [2]     what it is to be
--       [3]     "1": forget the marks too
-- Reply: what the epoch was, "" where it was gone. It is changed where that is ARGV[1], or ARGV[1] is "*".
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:r rebuilding:<epoch>:<run> <epoch> 0  ->  rebuilding:<epoch>:<run>

if #KEYS ~= 2 or #ARGV ~= 3 then
  return redis.error_reply('ERR epoch takes 2 keys and 3 arguments')
end
local found = redis.call('GET', KEYS[1]) or ''
if ARGV[1] == '*' or ARGV[1] == found then
  -- First what a user may not be allowed to do.
  if ARGV[3] == '1' then
    redis.call('DEL', KEYS[2])
  end
  redis.call('SET', KEYS[1], ARGV[2])
end
return found
