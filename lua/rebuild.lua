#!lua
-- rebuild: puts sends of some users of one shard back into their histories.
--
-- An entry of the same id and time as one that is there is that one; so to do it again changes nothing. One of the same id
-- and origin (but 0, of what a rebuild put back) is the same send, too, decided twice: the later one stays, whichever came
-- first. Where one of the two was not committed, that is the earlier one, as a rule; and a send that is taken to be later than
-- it was lets nothing through that is too many.
--
-- KEYS  [1]     the shard's epoch
--       [2..]   hashes of users: field -> history, 20-byte entries, ascending by time; one more byte, 0,
--               ends a history in which a cost is not 1
-- ARGV  [1]     what the epoch has to be: the mark of this rebuild
--       [2]     entries of this time (ms since 2020-01-01, decimal) or before are too old, and left out
--       [3]     the time to live of the keys, ms, decimal
--       [4]     the most entries of a user, decimal: where there are more, the oldest are dropped
--       [5]     items, big-endian, for each hash in the order of KEYS: users u16, their fields (each behind its
--               length u8), then for each user: entries u16, each 20 bytes
-- Reply: how many entries were not there, and are now.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is another.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 rebuilding:<epoch>:<run> 216000000000 1468800000 10000
--            "\0\1" "\2" <field> "\0\1" <entry>  ->  1

local byte, find, sub, unpack_struct = string.byte, string.find, string.sub, struct.unpack
local ENTRY_BYTES, FLAG, RESTORED = 20, '\0', '\0\0\0'

if #ARGV ~= 5 then
  return redis.error_reply('ERR rebuild takes 5 arguments, not ' .. #ARGV)
end
local epoch = redis.call('GET', KEYS[1])
if epoch ~= ARGV[1] then
  return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
end
local too_old, max_bytes, items, place, added = tonumber(ARGV[2]), tonumber(ARGV[4]) * ENTRY_BYTES, ARGV[5], 1, 0

local function u16()
  local high, low = byte(items, place, place + 1)
  place = place + 2
  return high * 256 + low
end

-- Where in a history its next entry with these bytes in this place (from 1) of it begins, from `from` on.
local function next_with(history, bytes, within, from)
  local at = find(history, bytes, from + within - 1, true)
  while at and at % ENTRY_BYTES ~= within do
    at = find(history, bytes, at + 1, true)
  end
  return at and at - within + 1
end

-- The history with the entry in its place, behind those of the same time; nothing where it, or a later one of the same send,
-- is there already.
local function insert(history, entry, time)
  local origin = sub(entry, 12, 14)
  local known = origin ~= RESTORED and next_with(history, sub(entry, 6, 14), 6, 1)
  while known do
    local other = unpack_struct('>I5', history, known)
    if other > time then
      return nil
    elseif other < time then
      history = sub(history, 1, known - 1) .. sub(history, known + ENTRY_BYTES)
      break
    end
    known = next_with(history, sub(entry, 6, 14), 6, known + ENTRY_BYTES)
  end
  -- How many entries are of an earlier time.
  local earlier, upto = 0, #history / ENTRY_BYTES
  while earlier < upto do
    local middle = math.floor((earlier + upto) / 2)
    if unpack_struct('>I5', history, middle * ENTRY_BYTES + 1) < time then
      earlier = middle + 1
    else
      upto = middle
    end
  end
  -- Those of the same time stay in front.
  local behind = earlier * ENTRY_BYTES + 1
  while behind <= #history and unpack_struct('>I5', history, behind) == time do
    if sub(history, behind + 5, behind + 10) == sub(entry, 6, 11) then
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

local writes = {}
for k = 2, #KEYS do
  local users, fields, changed = u16(), {}, {}
  for u = 1, users do
    local behind = place + 1 + byte(items, place)
    fields[u], place = sub(items, place + 1, behind - 1), behind
  end
  local histories = redis.call('HMGET', KEYS[k], unpack(fields))
  for u = 1, users do
    local history, dirty = histories[u] or '', false
    local flag = #history % ENTRY_BYTES == 1 and sub(history, -1) == FLAG and FLAG or ''
    history = sub(history, 1, #history - #flag)
    if #history % ENTRY_BYTES ~= 0 then
      return redis.error_reply('ERR ' .. KEYS[k] .. ' holds a history that is not whole entries')
    end
    for _ = 1, u16() do
      local entry = sub(items, place, place + ENTRY_BYTES - 1)
      place = place + ENTRY_BYTES
      local time = unpack_struct('>I5', entry)
      local longer = time > too_old and insert(history, entry, time)
      if longer then
        history, dirty, added = longer, true, added + 1
        flag = byte(entry, ENTRY_BYTES) ~= 1 and FLAG or flag
      end
    end
    if dirty then
      changed[#changed + 1], changed[#changed + 2] = fields[u], history .. flag
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
