#!lua
-- intern: gives numbers to names, in order from 1 and without gaps, and keeps them for ever.
--
-- A name that has a number keeps it; a new one gets the next; past the limit all new ones share limit + 1,
-- which is not stored.
--
-- KEYS  [1]     the table, a hash: name -> number, and the keyspace's epoch under "epoch"
--       [2]     the same backwards, a hash: number -> name; left out where nobody asks that way
-- ARGV  [1]     the keyspace's epoch
--       [2]     the highest number that may be given, decimal
--       [3..]   names, each with a first byte that no table's own field begins with ("[" or "=")
-- Reply: a list of integers, one a name, in their order.
-- Error: LOSTHISTORY, nothing written, when the table is gone or of another keyspace.
--
-- Example: EVALSHA <sha> 1 weir:{weir}:kinds <epoch> 65534 ["push","promo"] ["email",null]  ->  1, 2

if #KEYS < 1 or #KEYS > 2 or #ARGV < 3 then
  return redis.error_reply('ERR intern takes 1 or 2 keys and at least 3 arguments')
end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then
  return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
end
local limit, given = tonumber(ARGV[2]), redis.call('HLEN', KEYS[1]) - 1
local names = {}
for n = 3, #ARGV do
  names[n - 2] = ARGV[n]
end
local numbers = redis.call('HMGET', KEYS[1], unpack(names))
local new, backwards, size, fresh = {}, {}, 0, {}
for n = 1, #names do
  local number = tonumber(numbers[n] or fresh[names[n]])
  if not number and given < limit then
    given = given + 1
    number = given
    fresh[names[n]] = number
    new[size + 1], new[size + 2] = names[n], number
    backwards[size + 1], backwards[size + 2] = number, names[n]
    size = size + 2
  end
  numbers[n] = number or limit + 1
end
if size > 0 then
  redis.call('HSET', KEYS[1], unpack(new))
  if KEYS[2] then
    redis.call('HSET', KEYS[2], unpack(backwards))
  end
end
return numbers
