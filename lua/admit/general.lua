-- The part of admit that can decide everything, at the price of a walk.

-- What makes the rest of the script: gives decide_user.
local function make_general(now, packed_now, retention, head, sends, replies)
  local byte, find, sub, rep = string.byte, string.find, string.sub, string.rep
  local floor, abs, max = math.floor, math.abs, math.max
  local pack, unpack_struct, band, NEVER = struct.pack, struct.unpack, bit.band, math.huge
  local ALLOWED, REPLAYED, DUPLICATE, DENIED, STALE, TORN, LATER = 0, 1, 2, 3, 4, 5, 6
  local MAX_AHEAD_MS, ENTRY_BYTES, FLAG = 300000, 20, '\0'
  -- The most entries of a user: where there are more, the oldest go.
  local max_entries = head[6]
  -- Work of one call, in steps of some 0.2 us, after which the rest is put off. A call's first send cannot be, whatever
  -- it takes; as much may then come on top, so that a long history is not read anew for each of its sends.
  local MAX_WORK = 2000
  local KIND_OVERFLOW, CAMPAIGN_OVERFLOW = 65535, 16777215
  -- What is read of an entry, each from its place in it (from 1) on, and what is skipped up to the next, as a number
  -- too, since that is one step of the format. Of eight at once, since each call of a C function costs more than an
  -- entry.
  local KIND = { at = 15, one = '>I2', eight = '>' .. rep('I2I18', 8) }
  local CAMPAIGN = { at = 17, one = '>I3', eight = '>' .. rep('I3I17', 8) }
  local COST = { at = 20, one = '>B', eight = '>' .. rep('BI19', 8) }
  local horizon, touch = now + MAX_AHEAD_MS, head[4] == 1

  local known, sets = 0, {}
  do
    local packed = ARGV[3]
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

  local work, budget, replied = 0, MAX_WORK, 0
  -- The user at hand: history, what the call has added behind it, how many entries both have, how many of the oldest are
  -- not written back, and whether each costs 1.
  local history, added, count, gone, ones = '', '', 0, 0, true
  -- Of its entries: times, each read when it is asked for; kinds and campaigns, those of the history read when a filter
  -- or a campaign first asks; the sum of the costs up to each; the same sums over what a filter or campaign counts, and
  -- whether a filter has met a kind that the caller does not know.
  local times, kinds, campaigns, totals, partial, stale = {}, {}, {}, {}, {}, false
  -- Where the block of the user's key begins.
  local block

  local read_time = { __index = function(list, i)
    local time = unpack_struct('>I5', history, (i - 1) * ENTRY_BYTES + 1)
    list[i] = time
    return time
  end }

  -- The sums of costs that are all 1; of any user.
  local count_up = setmetatable({}, { __index = function(list, i)
    list[i] = i
    return i
  end })

  -- Fills a list with what the entries of the history say.
  local function read(list, what)
    local place, eight, one, upto = what.at, what.eight, what.one, #history / ENTRY_BYTES
    local i, _ = 1, nil
    -- What the eighth skips ends within the ninth.
    while i + 8 <= upto do
      list[i], _, list[i + 1], _, list[i + 2], _, list[i + 3], _,
        list[i + 4], _, list[i + 5], _, list[i + 6], _, list[i + 7] = unpack_struct(eight, history, place)
      i, place = i + 8, place + 8 * ENTRY_BYTES
    end
    while i <= upto do
      list[i] = unpack_struct(one, history, place)
      i, place = i + 1, place + ENTRY_BYTES
    end
    work = work + upto / 4
  end

  -- Makes the sums of costs that are not all 1.
  local function read_costs()
    totals = {}
    read(totals, COST)
    local sum = 0
    for i = 1, count do
      -- Those that were added while all cost 1.
      sum = sum + (totals[i] or 1)
      totals[i] = sum
    end
    totals[0], ones = 0, false
    work = work + count / 2
  end

  local function load_history(packed, all_ones)
    history, added, count, gone, ones = packed, '', #packed / ENTRY_BYTES, 0, all_ones
    times, kinds, campaigns, totals, partial = setmetatable({}, read_time), {}, {}, count_up, {}
    if not all_ones then
      read_costs()
    end
    -- A long string is read from the key, hashed, and looked through for ids.
    work = work + count / 4
  end

  -- Whether a filter counts a kind; what was looked up is remembered beside the filter's bits.
  local function counts_kind(filter, kind)
    if kind > known and kind ~= KIND_OVERFLOW then
      stale = true
      return false
    end
    local bits = byte(filter.bits, floor(kind / 8) + 1)
    local counted = kind == KIND_OVERFLOW or (bits ~= nil and band(bits, 2 ^ (kind % 8)) ~= 0)
    filter[kind] = counted
    return counted
  end

  -- For each entry, the sum of the costs up to it that the cap counts.
  local function sums_of(cap, campaign)
    if cap.plain then
      return totals
    end
    local filter, same = cap.kinds, cap.same
    -- No campaign's key is that of a filter alone.
    local key = same and -1 - cap.filter * 16777216 - campaign or cap.filter
    local sums = partial[key]
    if not sums then
      sums = { [0] = 0, upto = 0 }
      partial[key] = sums
    end
    local upto = sums.upto
    if upto == count then
      return sums
    end
    if filter and not kinds[1] then
      read(kinds, KIND)
    end
    if same and not campaigns[1] then
      read(campaigns, CAMPAIGN)
    end
    local sum = sums[upto]
    for i = upto + 1, count do
      local counted = not same or campaigns[i] == campaign or campaigns[i] == CAMPAIGN_OVERFLOW
      if counted and filter then
        local kind = kinds[i]
        counted = filter[kind]
        if counted == nil then
          counted = counts_kind(filter, kind)
        end
      end
      if counted then
        sum = sum + (ones and 1 or totals[i] - totals[i - 1])
      end
      sums[i] = sum
    end
    work = work + (count - upto) / 2
    sums.upto = count
    return sums
  end

  -- The first of the ascending numbers list[from..upto] that is at least `least`; upto + 1 where none is.
  local function first_at_least(list, least, from, upto)
    if upto < from or list[from] >= least then
      return from
    end
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
    local all = totals[count] + cost
    for c = 1, #caps do
      local cap = caps[c]
      local limit = cap.limit
      -- What a window counts is a part of what its filter counts, and that of all.
      local sums = all > limit and sums_of(cap, campaign)
      if sums and sums[count] + cost > limit then
        local first
        if cap.length then
          first = at - cap.length + 1
        else
          first = at < cap.next and cap.start or cap.next
        end
        local i = first_at_least(times, first, from, count)
        local used = sums[count] - sums[i - 1]
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
        work = work + 3
      end
    end
    work = work + #caps / 4
    return code, worst, worst_used, worst_blocking
  end

  -- REPLAYED and when it was let through, DUPLICATE, or nothing; of the entries in a string that stands behind `before`
  -- bytes of the history, from the one behind `place`.
  local function seen_in(entries, before, place, id, origin)
    local code
    place = find(entries, id, place + 1, true)
    while place do
      if place % ENTRY_BYTES == 6 then
        if sub(entries, place + 6, place + 8) == origin then
          return REPLAYED, times[(before + place - 6) / ENTRY_BYTES + 1]
        end
        code = DUPLICATE
      end
      place = find(entries, id, place + 1, true)
    end
    return code
  end

  local function seen(id, origin, from)
    local code, at = seen_in(history, 0, (from - 1) * ENTRY_BYTES, id, origin)
    if code ~= REPLAYED and added ~= '' then
      local later, later_at = seen_in(added, #history, 0, id, origin)
      code, at = later or code, later_at
    end
    work = work + floor(count / 32)
    return code, at
  end

  local function reply(send, code, cap, used, at, blocking)
    replies[replied + 1], replies[replied + 2] = send * 65536 + code * 256 + cap, used
    replies[replied + 3], replies[replied + 4] = at, blocking
    replied = replied + 4
  end

  -- Decides the send at `s` of the sends. Returns whether the history has changed, and whether the key's time to
  -- live must be renewed.
  local function decide(s)
    local way, id, rest = abs(sends[s + 1]), sends[s + 2], sends[s + 3]
    local kind, campaign, cost = unpack_struct('>I2I3B', rest, 4)
    local newest = count
    while newest > gone and times[newest] > horizon do
      newest = newest - 1
    end
    work = work + count - newest
    local at = newest > gone and times[newest] > now and times[newest] or now
    local ahead = newest < count and 16 or 0
    local from = first_at_least(times, at + 1 - retention, gone + 1, count)

    local code, replayed_at = seen(id, sub(rest, 1, 3), from)
    if code == REPLAYED then
      reply(s / 3, REPLAYED + ahead, 0, 0, replayed_at, 0)
      return touch, false
    end
    local cap, used, blocking = 0, 0, nil
    if not code then
      code, cap, used, blocking = judge(sets[head[way + 1]], cost, campaign, at, from)
    end
    local recorded = not stale and (code == ALLOWED or head[way + 2] == 1)
    -- The first entry that stays when this one is recorded.
    local kept = recorded and max(from, count + 2 - max_entries) or from
    local dropped = kept > from and 64 or 0
    if code ~= ALLOWED or ahead > 0 or at > now or dropped > 0 then
      reply(s / 3, code + ahead + dropped + (blocking and 32 or 0), cap, used, at, blocking or 0)
    end
    if not recorded then
      return false, false
    end

    local renew = newest < from or times[newest] < block
    local entry = (at == now and packed_now or pack('>I5', at)) .. id .. rest
    if newest == count then
      if ones and cost ~= 1 then
        read_costs()
      end
      -- What is too old goes, and of the rest the oldest where there are too many.
      count, gone = count + 1, kept - 1
      added, times[count], kinds[count], campaigns[count] = added .. entry, at, kind, campaign
      if not ones then
        totals[count] = totals[count - 1] + cost
      end
    else
      -- What is far ahead of the clock stays behind the new entry.
      local cut, whole = newest * ENTRY_BYTES, history .. added
      local packed = sub(whole, (from - 1) * ENTRY_BYTES + 1, cut) .. entry .. sub(whole, cut + 1)
      load_history(sub(packed, -max_entries * ENTRY_BYTES), ones and cost == 1)
    end
    return true, renew
  end

  local function refuse(code, s, upto)
    for send = s / 3, upto / 3 - 1 do
      reply(send, code, 0, 0, 0, 0)
    end
  end

  -- Decides the sends of one user from `s` on. Returns the history to write, if any, renewal, and where numbers of the
  -- reply and the user's sends end.
  return function(packed, s, replied_before, block_of_key)
    replied, block = replied_before, block_of_key
    local upto = s + 3
    while sends[upto - 2] < 0 do
      upto = upto + 3
    end
    -- The least that this user takes is a step an entry.
    local first = work == 0
    if not first and work + #packed / ENTRY_BYTES > budget then
      refuse(LATER, s, upto)
      return nil, false, replied, upto
    end
    local all_ones = true
    if #packed % ENTRY_BYTES == 1 and sub(packed, -1) == FLAG then
      packed, all_ones = sub(packed, 1, -2), false
    end
    if #packed % ENTRY_BYTES ~= 0 then
      refuse(TORN, s, upto)
      return nil, false, replied, upto
    end
    stale = false
    load_history(packed, all_ones)
    local answered, begun, dirty, renew = replied, s, false, false
    while s < upto do
      if s > begun and work > budget then
        refuse(LATER, s, upto)
        break
      end
      local changed, renewed = decide(s)
      if first then
        budget, first = max(MAX_WORK, 2 * work), false
      end
      dirty, renew = dirty or changed, renew or renewed
      s = s + 3
    end
    if stale then
      replied = answered
      refuse(STALE, begun, upto)
      return nil, false, replied, upto
    end
    local plain = totals[count] - totals[gone] == count - gone
    local whole = dirty and history .. added .. (plain and '' or FLAG)
    if whole and gone > 0 then
      -- Of what the call has added, too, where that alone is more than there may be.
      whole = sub(whole, gone * ENTRY_BYTES + 1)
    end
    return whole, renew, replied, upto
  end
end
