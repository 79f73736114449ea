-- forget: deletes a user's history. The user's next approved send begins a new one.
--
-- KEYS  [1]     the shard's epoch
--       [2]     the hash of users: field -> history
-- ARGV  [1]     the keyspace's epoch
--       [2]     the user's field
-- Reply: how many entries were deleted.
-- Error: LOSTHISTORY, nothing deleted, when the epoch is not the keyspace's: a rebuild would bring the entries back.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> <field>  ->  3

if #KEYS ~= 2 or #ARGV ~= 2 then
  return redis.error_reply('ERR forget takes 2 keys and 2 arguments')
end
local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local history = redis.call('HGET', KEYS[2], ARGV[2])
if not history then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[2])
return math.floor(#history / ENTRY_BYTES)
