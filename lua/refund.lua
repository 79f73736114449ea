#!lua
-- refund: takes sends of one shard's users back, each once, in the order of one partition of the refunds.
--
-- The rule: a refund removes the oldest entry of its id that was decided at or before the refund's own time. What
-- was taken before (its offset is below the shard's mark) is passed over, so a refund that is read again never
-- removes a later send of the same id.
--
-- KEYS  [1]     the shard's epoch
--       [2]     the shard's marks, a hash: topic, its id and partition -> next offset
--       [3..]   hashes of users: field -> history, 20-byte entries, ascending by time; one more byte,
--               0, ends a history in which a cost is not 1 (or was not)
-- ARGV  [1]     what the epoch has to be
--       [2]     the mark's field: topic, topic id and partition of the refunds, `name:id:partition`
--       [3]     refunds, big-endian, ascending by offset, each: key u16 (0 is KEYS[3]), id 6, time u40 (ms since
--               2020-01-01), offset u48, and the field behind its length u8
-- Reply: one string, a byte a refund: 0 taken back, 1 no such send, 2 the send was decided after the refund,
--        3 taken before, 4 the history is not whole entries (nothing is done with it).
-- Error: LOSTHISTORY, nothing read or written, when the epoch is another.
--
-- Example: EVALSHA <sha> 3 weir:{12}:e weir:{12}:r weir:{12}:7 <epoch> bounces:ASNFZ4mrze_-3LqYdlQyEA:0
--            "\0\0" <id> "\50\134\26\126\0" "\0\0\0\0\0\9" "\2" <field>  ->  "\0"
--
-- All that is read and decided comes before the first write, so an error leaves the shard as it was.

local find, sub, unpack_struct = string.find, string.sub, struct.unpack
local ENTRY_BYTES, FLAG = 20, '\0'
local TAKEN, UNKNOWN, EARLY, BEFORE, TORN = '\0', '\1', '\2', '\3', '\4'

if #ARGV ~= 3 then
  return redis.error_reply('ERR refund takes 3 arguments, not ' .. #ARGV)
end
local epoch = redis.call('GET', KEYS[1])
if epoch ~= ARGV[1] then
  return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
end
local mark = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0)
local items, replies, next_mark = ARGV[3], {}, mark
-- key -> field -> history, as far as read; and which of them have changed.
local histories, changed = {}, {}

local function history_of(key, field)
  local of_key = histories[key]
  if not of_key then
    of_key = {}
    histories[key] = of_key
  end
  of_key[field] = of_key[field] or redis.call('HGET', key, field) or ''
  return of_key[field]
end

-- The reply to one refund, and the history without what it takes back.
local function take_back(history, id, time)
  local more = #history % ENTRY_BYTES
  if more > 1 or (more == 1 and sub(history, -1) ~= FLAG) then
    return TORN
  end
  local place = find(history, id, 1, true)
  while place do
    if place % ENTRY_BYTES == 6 then
      -- Entries ascend by time: where the oldest is too young, all are.
      if unpack_struct('>I5', history, place - 5) > time then
        return EARLY
      end
      return TAKEN, sub(history, 1, place - 6) .. sub(history, place + 15)
    end
    place = find(history, id, place + 1, true)
  end
  return UNKNOWN
end

local at, n = 1, 0
while at <= #items do
  n = n + 1
  local number, id, time, offset, length, field_at = unpack_struct('>I2c6I5I6B', items, at)
  local key, field = KEYS[number + 3], sub(items, field_at, field_at + length - 1)
  at = field_at + length
  if offset < next_mark then
    replies[n] = BEFORE
  else
    local reply, left = take_back(history_of(key, field), id, time)
    if left then
      histories[key][field] = left
      changed[#changed + 1] = { key, field }
    end
    replies[n], next_mark = reply, offset + 1
  end
end

for _, place in ipairs(changed) do
  local key, field = place[1], place[2]
  local history = histories[key][field]
  if #history < ENTRY_BYTES then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, history)
  end
end
if next_mark > mark then
  redis.call('HSET', KEYS[2], ARGV[2], string.format('%.0f', next_mark))
end
return table.concat(replies)
