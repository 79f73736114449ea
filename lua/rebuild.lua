-- rebuild: inserts sends of some users of one shard into their histories again.
--
-- An entry of the same id and time as a present one is the same send, so a call that is repeated changes nothing. An entry of the
-- same id and origin (but the unknown origin, 0) is the same send, too, decided twice: the later one stays, whichever came first.
-- Where one of the two was not committed, that is usually the earlier one; and a send that is recorded with a later time than its own
-- approves nothing that is too many.
--
-- KEYS  [1]     the shard's epoch, or its last run
--       [2..]   hashes of users: field -> history
-- ARGV  [1]     what that has to be: the mark of this rebuild, or its run
--       [2]     entries of this time (ms since 2020-01-01, decimal) or before are too old, and skipped
--       [3]     the time to live of the keys, ms, decimal
--       [4]     the most entries of a user, decimal: where there are more, the oldest are dropped
--       [5]     items, big-endian, for each hash in the order of KEYS: users u16, their fields (each behind its
--               length u8), then for each user: entries u16, each 20 bytes
-- Reply: how many entries were inserted.
-- Error: LOSTHISTORY, nothing read or written, when it is another.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 rebuilding:<epoch>:<run> 216000000000 1468800000 10000
--            "\0\1" "\2" <field> "\0\1" <entry>  ->  1

local byte = string.byte
local ORIGIN_AT, UNKNOWN_ORIGIN = 12, '\0\0\0'

if #ARGV ~= 5 then
  return redis.error_reply('ERR rebuild takes 5 arguments, not ' .. #ARGV)
end
local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local too_old, max_bytes, items, place, added = tonumber(ARGV[2]), tonumber(ARGV[4]) * ENTRY_BYTES, ARGV[5], 1, 0

local function u16()
  local high, low = byte(items, place, place + 1)
  place = place + 2
  return high * 256 + low
end

-- The history without an earlier entry of the same send; nil where the entry, or a later one of the same send, is there already.
local function without_same_send(history, entry, time)
  if sub(entry, ORIGIN_AT, ORIGIN_AT + 2) == UNKNOWN_ORIGIN then
    return history
  end
  local id_and_origin = sub(entry, ID_AT, ORIGIN_AT + 2)
  local known = find_entry(history, id_and_origin, ID_AT, 1)
  while known do
    local other = unpack_struct('>I5', history, known)
    if other > time then
      return nil
    elseif other < time then
      return sub(history, 1, known - 1) .. sub(history, known + ENTRY_BYTES)
    end
    known = find_entry(history, id_and_origin, ID_AT, known + ENTRY_BYTES)
  end
  return history
end

-- Where the first entry of this time or a later one begins.
local function first_at_least(history, time)
  -- Sends come in the order of their partition, so most belong at the end.
  local earlier, upto = 0, #history / ENTRY_BYTES
  if upto > 0 and unpack_struct('>I5', history, #history - ENTRY_BYTES + 1) < time then
    return #history + 1
  end
  while earlier < upto do
    local middle = math.floor((earlier + upto) / 2)
    if unpack_struct('>I5', history, middle * ENTRY_BYTES + 1) < time then
      earlier = middle + 1
    else
      upto = middle
    end
  end
  return earlier * ENTRY_BYTES + 1
end

-- The history with the entry in its place, behind those of the same time; nil where nothing is to be inserted.
local function insert(history, entry, time)
  history = without_same_send(history, entry, time)
  if not history then
    return nil
  end
  local behind, id = first_at_least(history, time), sub(entry, ID_AT, ORIGIN_AT - 1)
  while behind <= #history and unpack_struct('>I5', history, behind) == time do
    if sub(history, behind + ID_AT - 1, behind + ORIGIN_AT - 2) == id then
      return nil
    end
    behind = behind + ENTRY_BYTES
  end
  -- It would be the first to be dropped.
  if behind == 1 and #history >= max_bytes then
    return nil
  end
  return sub(sub(history, 1, behind - 1) .. entry .. sub(history, behind), -max_bytes)
end

-- The history with its next `count` items; whether it has changed.
local function insert_all(history, flag, count)
  local dirty = false
  for _ = 1, count do
    local entry = sub(items, place, place + ENTRY_BYTES - 1)
    place = place + ENTRY_BYTES
    local time = unpack_struct('>I5', entry)
    local longer = time > too_old and insert(history, entry, time)
    if longer then
      history, dirty, added = longer, true, added + 1
      flag = byte(entry, ENTRY_BYTES) ~= 1 and FLAG or flag
    end
  end
  return history .. flag, dirty
end

local writes = {}
for k = 2, #KEYS do
  local users, fields, changed = u16(), {}, {}
  for u = 1, users do
    local behind = place + 1 + byte(items, place)
    fields[u], place = sub(items, place + 1, behind - 1), behind
  end
  local histories = redis.call('HMGET', KEYS[k], unpack(fields))
  for u = 1, users do
    local entries, flag = split_flag(histories[u] or '')
    if not entries then
      return redis.error_reply('ERR ' .. KEYS[k] .. ' holds a history that is not whole entries')
    end
    local history, dirty = insert_all(entries, flag, u16())
    if dirty then
      changed[#changed + 1], changed[#changed + 2] = fields[u], history
    end
  end
  writes[k] = changed
end
assert(place == #items + 1, 'the items are longer than their counts say')

for k = 2, #KEYS do
  if #writes[k] > 0 then
    redis.call('HSET', KEYS[k], unpack(writes[k]))
    redis.call('PEXPIRE', KEYS[k], ARGV[3])
  end
end
return added
