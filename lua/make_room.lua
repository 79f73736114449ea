-- make_room: takes totals of campaigns out of a shard that has as many as it may have, and marks them as gone: take finds them spent. A
-- rebuild marks totals that it has no room to restore.
--
-- The marks are a Bloom filter: 2^18 bits, four for each total. A total that was never there may look as one that is gone, the other
-- way round none does. A total that counts in windows, too, because another version of the policy has it so, stays, and only leaves
-- the register.
--
-- KEYS  [1]     the shard's epoch
--       [2]     the register of the shard's totals of campaigns, a hash as in take.lua
--       [3]     the marks of those that are gone, a text of bits
--       [4..]   the totals that are to go
-- ARGV  [1]     what the epoch has to be
--       [2..]   for each total: what the register must have of it (empty: nothing), and the places of its four bits, from 0, decimal
-- Reply: how many went: the ones that the register has as given. A repeated call changes nothing.
-- Error: LOSTHISTORY, nothing written, when the epoch is another.
--
-- Example: EVALSHA <sha> 4 weir:{12}:e weir:{12}:totals weir:{12}:gone weir:{12}:b5:money:may <epoch> -1795132800123 17 4 99 262143
--            ->  1

local BYTES, BITS_OF_ONE = 32768, 4
local byte, char, floor = string.byte, string.char, math.floor

if #KEYS < 4 or #ARGV ~= 1 + (#KEYS - 3) * (1 + BITS_OF_ONE) then
  return redis.error_reply('ERR make_room takes at least 4 keys, and 5 arguments for each from the fourth on')
end
local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local marks = redis.call('GET', KEYS[3]) or string.rep('\0', BYTES)
local leaving, fields_of, bytes, places = {}, {}, {}, {}

-- The fields of a total's hash; none where it counts in a window or a period, too.
local function fields(key)
  local hash, found = redis.call('HGETALL', key), {}
  for at = 1, #hash, 2 do
    if find(hash[at], '^[%dp]') then
      return nil
    end
    found[#found + 1] = hash[at]
  end
  return found
end

local function mark(bit)
  local place = floor(bit / 8) + 1
  local value, single = bytes[place], 2 ^ (bit % 8)
  if not value then
    value = byte(marks, place)
    places[#places + 1] = place
  end
  bytes[place] = floor(value / single) % 2 == 0 and value + single or value
end

for n = 4, #KEYS do
  local key, at = KEYS[n], 2 + (n - 4) * (1 + BITS_OF_ONE)
  if (redis.call('HGET', KEYS[2], key) or '') == ARGV[at] then
    leaving[#leaving + 1], fields_of[key] = key, fields(key)
    for bit = at + 1, fields_of[key] and at + BITS_OF_ONE or at do
      mark(tonumber(ARGV[bit]))
    end
  end
end
table.sort(places)
local pieces, from = {}, 1
for _, place in ipairs(places) do
  pieces[#pieces + 1], pieces[#pieces + 2], from = sub(marks, from, place - 1), char(bytes[place]), place + 1
end
pieces[#pieces + 1] = sub(marks, from)

-- First what a server without memory refuses. A total that is marked and still there counts on.
if #places > 0 then
  redis.call('SET', KEYS[3], table.concat(pieces))
end
for _, key in ipairs(leaving) do
  if fields_of[key] and #fields_of[key] > 0 then
    redis.call('HDEL', key, unpack(fields_of[key]))
  end
  redis.call('HDEL', KEYS[2], key)
end
return #leaving
