#!lua
-- admit: decides the sends of some users of one shard, and records those that go out.
--
-- The rule: a send is let through when, for every cap of its set, the costs of the user's entries in the cap's
-- window plus its own do not exceed the limit; then it is recorded once. An id that is recorded already is
-- answered as what it is (replay or duplicate) and not judged. It is src/domain/decide.rs, next to the data.
--
-- KEYS  [1]     the shard's epoch; left out where ARGV[1] is empty
--       [2..]   hashes of users: field (8 bytes) -> history, 20-byte entries, ascending by time
-- ARGV  [1]     the keyspace's epoch; empty: the caller has just checked it (a slot that is moving)
--       [2]     the clock, ms since 2020-01-01, decimal; so are all times below
--       [3]     the retention in ms, decimal
--       [4]     "1": write a user again whose send is a replay, so that a WAIT on this connection covers it
--       [5]     cap sets, big-endian: kinds known u16; filters u16, each: bytes u16, bitmap (bit k of byte k/8:
--               kind k counts); sets u16, each: caps u8, each 25 bytes: shape u8 (1 calendar, 2 same campaign),
--               filter u16 (0: all kinds), limit u32, then sliding: length u48, 0, 0;
--               calendar: start u48, next u48, after u48
--       [6]     items, big-endian, for each hash in the order of KEYS: users u16, their fields (8 bytes each),
--               then for each user: sends u16, each 18 bytes: cap set u16 (from 0), record u8 (1: always),
--               id 6, origin 3, kind 2, campaign 3, cost 1
-- Reply: one string, 16 bytes a send, in their order: code u8, cap u8 (from 0), used u32, at u40, blocking u40.
--        code: 0 allowed, 1 replayed, 2 duplicate, 3 denied, and for all sends of a user, nothing written:
--        4 the history names a kind above "kinds known", 5 the history is not whole entries;
--        6 not decided, ask again (the call had done enough work). +16: an entry is far ahead of the clock.
--        +32: blocking is there.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is not the keyspace's.
--
-- Example: one user, one send, one cap of 2 in 24 h:
--   EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> 217000000000 691200000 0
--     "\0\0" "\0\0" "\0\1" "\1" "\0" "\0\0" "\0\0\0\2" "\0\0\5\38\92\0" <12 zero bytes>     (one string)
--     "\0\1" <field> "\0\1" "\0\0" "\0" <id><origin><kind><campaign> "\1"                    (one string)
--   -> "\0" "\0" "\0\0\0\0" <at> "\0\0\0\0\0"
--
-- All that is read and decided comes before the first write, so an error leaves the shard as it was.

local byte, find, sub, floor = string.byte, string.find, string.sub, math.floor
local pack, unpack_struct, band = struct.pack, struct.unpack, bit.band

local ENTRY_BYTES, ITEM_BYTES, FIELD_BYTES = 20, 18, 8
local MAX_AHEAD_MS, DAY_MS = 300000, 86400000
local KIND_OVERFLOW, CAMPAIGN_OVERFLOW = 65535, '\255\255\255'
local ALLOWED, REPLAYED, DUPLICATE, DENIED, STALE, TORN, LATER = 0, 1, 2, 3, 4, 5, 6
local NEVER = math.huge
-- Entries looked at in one call, after which the rest is put off: some 2 ms at the worst.
local MAX_WORK = 20000

if #ARGV ~= 6 then
  return redis.error_reply('ERR admit takes 6 arguments, not ' .. #ARGV)
end
local first_key = 1
if ARGV[1] ~= '' then
  first_key = 2
  local epoch = redis.call('GET', KEYS[1])
  if epoch ~= ARGV[1] then
    return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
  end
end
local now, retention, touch = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local horizon, packed_now = now + MAX_AHEAD_MS, pack('>I5', now)

-- The reply to most sends.
local ALLOWED_NOW = pack('>BBI4I5I5', ALLOWED, 0, 0, now, 0)

local known, sets = 0, {}
do
  local packed = ARGV[5]
  local filters, count, length, place = {}, 0, 0, 1
  known, count, place = unpack_struct('>I2I2', packed)
  for f = 1, count do
    length, place = unpack_struct('>I2', packed, place)
    filters[f] = { bits = sub(packed, place, place + length - 1) }
    place = place + length
  end
  count, place = unpack_struct('>I2', packed, place)
  for s = 1, count do
    local caps = {}
    length, place = unpack_struct('>B', packed, place)
    for c = 1, length do
      local shape, filter, limit, start, next, after
      shape, filter, limit, start, next, after, place = unpack_struct('>BI2I4I6I6I6', packed, place)
      local calendar, same = shape % 2 == 1, shape >= 2
      caps[c] = {
        limit = limit, length = not calendar and start, start = start, next = next, after = after,
        kinds = filters[filter], filter = filter, same = same, plain = filter == 0 and not same,
      }
    end
    sets[s] = caps
  end
end

local work = 0
-- The user at hand: history, how many entries, their times, the sum of the costs up to each, the same sums over
-- what a filter or campaign counts, and whether the history names a kind that the caller does not know.
local history, count, times, totals, partial, stale = '', 0, {}, { [0] = 0 }, {}, false

local function load_history(packed)
  history, count = packed, #packed / ENTRY_BYTES
  local p, total = 1, 0
  for i = 1, count do
    times[i] = unpack_struct('>I5', packed, p)
    total = total + byte(packed, p + 19)
    totals[i] = total
    p = p + ENTRY_BYTES
  end
  if next(partial) then
    partial = {}
  end
  work = work + count
end

local function counts(cap, i, campaign)
  local p = (i - 1) * ENTRY_BYTES
  if cap.same then
    local theirs = sub(history, p + 17, p + 19)
    if theirs ~= campaign and theirs ~= CAMPAIGN_OVERFLOW then
      return false
    end
  end
  if not cap.kinds then
    return true
  end
  local high, low = byte(history, p + 15, p + 16)
  local kind = high * 256 + low
  if kind == KIND_OVERFLOW then
    return true
  end
  if kind > known then
    stale = true
    return false
  end
  -- Kinds that were looked up are remembered beside the bits.
  local counted = cap.kinds[kind]
  if counted == nil then
    local bits = byte(cap.kinds.bits, floor(kind / 8) + 1)
    counted = bits ~= nil and band(bits, 2 ^ (kind % 8)) ~= 0
    cap.kinds[kind] = counted
  end
  return counted
end

-- For each entry, the sum of the costs up to it that the cap counts.
local function sums_of(cap, campaign)
  if cap.plain then
    return totals
  end
  local key = cap.same and cap.filter .. campaign or cap.filter
  local sums = partial[key]
  if not sums then
    sums = { [0] = 0, upto = 0 }
    partial[key] = sums
  end
  for i = sums.upto + 1, count do
    sums[i] = sums[i - 1] + (counts(cap, i, campaign) and totals[i] - totals[i - 1] or 0)
  end
  work = work + 2 * (count - sums.upto)
  sums.upto = count
  return sums
end

-- The first of the ascending numbers list[from..upto] that is at least `least`; upto + 1 where none is.
local function first_at_least(list, least, from, upto)
  while upto - from > 8 do
    local middle = floor((from + upto) / 2)
    if list[middle] < least then
      from = middle + 1
    else
      upto = middle
    end
  end
  while from <= upto and list[from] < least do
    from = from + 1
  end
  return from
end

-- The first moment at which an entry of this time has left the window.
local function freed_at(cap, time)
  if cap.length then
    return time + cap.length
  elseif time < cap.next then
    return cap.next
  elseif time < cap.after then
    return cap.after
  end
  return time
end

-- The caps alone: code, cap, used, blocking. Of the caps that deny, the one that frees last; of equals the first.
local function judge(caps, cost, campaign, at, from)
  local code, worst, worst_used, worst_blocking, worst_freed = ALLOWED, 0, 0, nil, nil
  for c = 1, #caps do
    local cap = caps[c]
    local first
    if cap.length then
      first = at - cap.length + 1
    else
      first = at < cap.next and cap.start or cap.next
    end
    local sums = sums_of(cap, campaign)
    local i = first_at_least(times, first, from, count)
    local used, limit = sums[count] - sums[i - 1], cap.limit
    if used + cost > limit then
      local blocking, freed = nil, NEVER
      if cost <= limit then
        blocking = times[first_at_least(sums, sums[count] + cost - limit, i, count)]
        freed = freed_at(cap, blocking)
      end
      if not worst_freed or freed > worst_freed then
        code, worst, worst_used, worst_blocking, worst_freed = DENIED, c - 1, used, blocking, freed
      end
    end
  end
  work = work + #caps
  return code, worst, worst_used, worst_blocking
end

-- REPLAYED and when it was let through, DUPLICATE, or nothing.
local function seen(id, origin, from)
  local code
  local place = find(history, id, (from - 1) * ENTRY_BYTES + 1, true)
  while place do
    if place % ENTRY_BYTES == 6 then
      if sub(history, place + 6, place + 8) == origin then
        return REPLAYED, times[(place - 6) / ENTRY_BYTES + 1]
      end
      code = DUPLICATE
    end
    place = find(history, id, place + 1, true)
  end
  work = work + floor(count / 32)
  return code
end

-- Decides the send whose 18 bytes begin at `place` of the items. Returns its record, whether the history has
-- changed, and whether the key's time to live must be renewed.
local function decide(items, place)
  local high, low, record = byte(items, place, place + 2)
  local tail = sub(items, place + 3, place + 17)

  local newest = count
  while newest > 0 and times[newest] > horizon do
    newest = newest - 1
  end
  work = work + count - newest
  local at = newest > 0 and times[newest] > now and times[newest] or now
  local ahead = newest < count and 16 or 0
  local from = first_at_least(times, at + 1 - retention, 1, count)

  local code, replayed_at = seen(sub(tail, 1, 6), sub(tail, 7, 9), from)
  if code == REPLAYED then
    return pack('>BBI4I5I5', REPLAYED + ahead, 0, 0, replayed_at, 0), touch, false
  end
  local cap, used, blocking = 0, 0, nil
  if not code then
    code, cap, used, blocking = judge(sets[high * 256 + low + 1], byte(tail, 15), sub(tail, 12, 14), at, from)
  end
  local reply = ALLOWED_NOW
  if code ~= ALLOWED or ahead > 0 or at > now then
    reply = pack('>BBI4I5I5', code + ahead + (blocking and 32 or 0), cap, used, at, blocking or 0)
  end
  if stale or (code ~= ALLOWED and record ~= 1) then
    return reply, false, false
  end

  -- A user's first send in a block of `retention` renews the key's time to live; it then outlasts the block.
  local renew = newest < from or times[newest] < at - at % retention
  local packed_at = at == now and packed_now or pack('>I5', at)
  work = work + floor(count / 32)
  if from == 1 and newest == count then
    count = count + 1
    history, times[count], totals[count] = history .. packed_at .. tail, at, totals[count - 1] + byte(tail, 15)
  else
    -- What is too old goes, and what is far ahead of the clock stays behind the new entry.
    local cut = newest * ENTRY_BYTES
    load_history(sub(history, (from - 1) * ENTRY_BYTES + 1, cut) .. packed_at .. tail .. sub(history, cut + 1))
  end
  return reply, true, renew
end

local replies, replied = {}, 0
local function refuse(code, sends)
  local reply = pack('>BBI4I5I5', code, 0, 0, 0, 0)
  for _ = 1, sends do
    replied = replied + 1
    replies[replied] = reply
  end
end

local items, place = ARGV[6], 1
-- Fields and histories to write, a list a key, and the keys whose time to live is renewed.
local writes, renewals = {}, {}

-- Decides the sends of one user, whose count is at `place`. Returns the history to write, if any, and renewal.
local function decide_user(packed, may_put_off)
  local sends = byte(items, place) * 256 + byte(items, place + 1)
  place = place + 2
  local after, answered = place + sends * ITEM_BYTES, replied
  if may_put_off and work > MAX_WORK then
    refuse(LATER, sends)
    place = after
    return nil, false
  end
  if #packed % ENTRY_BYTES ~= 0 then
    refuse(TORN, sends)
    place = after
    return nil, false
  end
  stale = false
  load_history(packed)
  local dirty, renew, spent = false, false, nil
  for n = 1, sends do
    -- What the first send of a user costs cannot be divided, so it is not held against the others.
    spent = spent or n > 1 and work
    if spent and work - spent > MAX_WORK then
      refuse(LATER, sends - n + 1)
      break
    end
    local reply, changed, renewed = decide(items, place)
    replied = replied + 1
    replies[replied] = reply
    dirty, renew = dirty or changed, renew or renewed
    place = place + ITEM_BYTES
  end
  place = after
  if stale then
    replied = answered
    refuse(STALE, sends)
    return nil, false
  end
  return dirty and history, renew
end

for k = first_key, #KEYS do
  local users = byte(items, place) * 256 + byte(items, place + 1)
  place = place + 2
  local fields = {}
  for u = 1, users do
    fields[u] = sub(items, place, place + FIELD_BYTES - 1)
    place = place + FIELD_BYTES
  end
  local histories = redis.call('HMGET', KEYS[k], unpack(fields))
  local changed, size = nil, 0
  for u = 1, users do
    local packed, renew = decide_user(histories[u] or '', replied > 0)
    if packed then
      changed = changed or {}
      changed[size + 1], changed[size + 2] = fields[u], packed
      size = size + 2
      renewals[k] = renewals[k] or renew
    end
  end
  writes[k] = changed
end
assert(place == #items + 1, 'the items are longer than their counts say')

for k = first_key, #KEYS do
  if writes[k] then
    redis.call('HSET', KEYS[k], unpack(writes[k]))
    if renewals[k] then
      -- A day more than two blocks, for clocks of workers that differ.
      redis.call('PEXPIRE', KEYS[k], 2 * retention + DAY_MS)
    end
  end
end
return table.concat(replies, '', 1, replied)
