-- refund: removes refunded sends of one shard's users, each once, in the order of one partition of the refunds.
--
-- The rule: a refund removes the oldest entry of its id that was decided at or before the refund's own time. A refund whose
-- offset is below the shard's mark has no further effect, so one that is read again never removes a later send of the same id.
--
-- KEYS  [1]     the shard's epoch, or its last run
--       [2]     the shard's marks, a hash: topic, its id and partition -> next offset
--       [3..]   hashes of users: field -> history
-- ARGV  [1]     what that has to be
--       [2]     the mark's field: topic, topic id and partition of the refunds, `name:id:partition`
--       [3]     refunds, big-endian, ascending by offset, each: key u16 (0 is KEYS[3]), id 6, time u40 (ms since
--               2020-01-01), offset u48, and the field behind its length u8
-- Reply: one string, a byte per refund: 0 removed, 1 no such send, 2 the send was decided after the refund,
--        3 removed before, 4 the history is not whole entries (it stays as it is).
-- Error: LOSTHISTORY, nothing read or written, when it is another.
--
-- Example: EVALSHA <sha> 3 weir:{12}:e weir:{12}:r weir:{12}:7 <epoch> bounces:ASNFZ4mrze_-3LqYdlQyEA:0
--            "\0\0" <id> "\50\134\26\126\0" "\0\0\0\0\0\9" "\2" <field>  ->  "\0"
--
-- All reading and deciding comes before the first write, so an error leaves the shard as it was.

local TAKEN, UNKNOWN, EARLY, BEFORE, TORN = '\0', '\1', '\2', '\3', '\4'

if #ARGV ~= 3 then
  return redis.error_reply('ERR refund takes 3 arguments, not ' .. #ARGV)
end
local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local mark = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0)
local items, replies, next_mark = ARGV[3], {}, mark
-- key -> field -> history, of those read so far; and which of them have changed.
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

-- The reply to one refund, and the history without the refunded entry.
local function take_back(history, id, time)
  local entries, flag = split_flag(history)
  if not entries then
    return TORN
  end
  local place = find_entry(entries, id, ID_AT, 1)
  if not place then
    return UNKNOWN
  elseif unpack_struct('>I5', entries, place) > time then
    -- Entries ascend by time: where the oldest is later than the refund, all are.
    return EARLY
  end
  return TAKEN, sub(entries, 1, place - 1) .. sub(entries, place + ENTRY_BYTES) .. flag
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
