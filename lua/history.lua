#!lua flags=no-writes
-- history: reads the histories of users of one shard, as they lie there.
--
-- KEYS  [1]     the shard's epoch; left out where ARGV[1] is empty
--       [2..]   hashes of users, one a user: field -> history, 20-byte entries, ascending by time;
--               one more byte, 0, ends one in which a cost is not 1
-- ARGV  [1]     the keyspace's epoch; empty: the caller looks at it by itself (a slot that is moving)
--       [2..]   a field a hash, in the order of KEYS
-- Reply: a list of strings, one a user, in their order; empty for a user without a history.
-- Error: LOSTHISTORY, nothing read, when the epoch is not the keyspace's.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> <field>  ->  <time><id><origin><kind><campaign><cost>...

local first_key = ARGV[1] ~= '' and 2 or 1
if #ARGV < 2 or #KEYS - first_key ~= #ARGV - 2 then
  return redis.error_reply('ERR history takes a field a hash')
end
if first_key == 2 then
  local epoch = redis.call('GET', KEYS[1])
  if epoch ~= ARGV[1] then
    return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
  end
end
local histories = {}
for user = 1, #ARGV - 1 do
  histories[user] = redis.call('HGET', KEYS[first_key + user - 1], ARGV[user + 1]) or ''
end
return histories
