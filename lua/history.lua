-- history: reads the histories of users of one shard.
--
-- KEYS  [1]     the shard's epoch; absent where ARGV[1] is empty
--       [2..]   hashes of users, one per user: field -> history
-- ARGV  [1]     the keyspace's epoch; empty: the caller reads it by itself (a slot that is moving)
--       [2..]   a field per hash, in the order of KEYS
-- Reply: a list of strings, one per user, in their order; empty for a user without a history.
-- Error: LOSTHISTORY, nothing read, when the epoch is not the keyspace's.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> <field>  ->  <time><id><origin><kind><campaign><cost>...

local first_key = ARGV[1] ~= '' and 2 or 1
if #ARGV < 2 or #KEYS - first_key ~= #ARGV - 2 then
  return redis.error_reply('ERR history takes a field per hash')
end
if first_key == 2 then
  local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
  if wrong then
    return wrong
  end
end
local histories = {}
for user = 1, #ARGV - 1 do
  histories[user] = redis.call('HGET', KEYS[first_key + user - 1], ARGV[user + 1]) or ''
end
return histories
