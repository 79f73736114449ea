-- history: reads the history of a user.
--
-- KEYS  [1]     the shard's epoch; absent where ARGV[1] is empty
--       [#KEYS] the hash of users: field -> history
-- ARGV  [1]     the keyspace's epoch; empty: the caller reads it by itself (a slot that is moving)
--       [2]     the user's field
-- Reply: the history, a string; empty for a user without one.
-- Error: LOSTHISTORY, nothing read, when the epoch is not the keyspace's.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> <field>  ->  <time><id><origin><kind><campaign><cost>...

if #ARGV ~= 2 or #KEYS ~= (ARGV[1] == '' and 1 or 2) then
  return redis.error_reply('ERR history takes 2 arguments, and the epoch where the first is not empty')
end
local wrong = #KEYS == 2 and epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
return wrong or redis.call('HGET', KEYS[#KEYS], ARGV[2]) or ''
