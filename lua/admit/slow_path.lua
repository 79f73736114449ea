-- The slow path: decides every send, at the price of reading the history.
--
-- It is made when it is first needed: most calls do without.

-- Makes decide_user, the last function here.
local function make_slow_path(terms, sends, replies, packed_sets, read_filters, read_sets, split_flag, find_entry)
  local sub, rep, abs, max, floor = string.sub, string.rep, math.abs, math.max, math.floor
  local pack, unpack_struct, HUGE = struct.pack, struct.unpack, math.huge
  local ENTRY_BYTES, FLAG, ID_AT = 20, '\0', 6
  -- Numbers of a cap plan; see admit.lua.
  local CAP_SET, ALWAYS = 1, 2
  -- Codes of the reply, and what is added to them; see admit.lua.
  local ALLOWED, REPLAYED, DUPLICATE, DENIED, STALE, TORN, LATER = 0, 1, 2, 3, 4, 5, 6
  local AHEAD, BLOCKING, DROPPED = 16, 32, 64
  -- How far ahead of the clock an entry may be and still count as the user's time.
  local MAX_AHEAD_MS = 300000
  -- The origin of every intent that came over HTTP: such a replay may be another intent of the same id.
  local NO_RECORD = '\255\255\255'
  -- The number of all campaigns above the limit of numbers: such an entry counts for every campaign.
  local CAMPAIGN_OVERFLOW = 16777215
  -- Work of one call, in steps of some 0.2 us, after which the rest is answered LATER. A call's first send is always decided,
  -- whatever it takes; as much may then come on top, so that a long history is not read again for each of its sends.
  local MAX_WORK = 2000
  local now, packed_now, retention, touch, _, max_entries = unpack(terms, 1, 6)
  local horizon = now + MAX_AHEAD_MS

  local sets = read_sets(packed_sets, read_filters(packed_sets))
  local work, budget, replied = 0, MAX_WORK, 0

  -- The user whose sends are decided: history, the entries that the call has added behind it, how many entries both have, how many
  -- of the oldest are not written back, and whether each costs 1.
  local history, added, count, gone, ones = '', '', 0, 0, true
  -- Of the user's entries: times, each read when it is first needed; kinds and campaigns, those of the history read when a filter
  -- or a campaign first needs them; the sum of the costs up to each; the same sums over the entries that a filter or campaign
  -- counts; and whether a filter has met a kind that the caller does not know.
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

  -- A column of the entries: where it is in an entry (from 1), and formats that read one, and eight at once: a call of a C
  -- function costs more than an entry. The bytes between are one number, since that is one step of the format.
  local KIND = { at = 15, one = '>I2', eight = '>' .. rep('I2I18', 8) }
  local CAMPAIGNS = { at = 17, one = '>I3', eight = '>' .. rep('I3I17', 8) }
  local COST = { at = 20, one = '>B', eight = '>' .. rep('BI19', 8) }

  -- Fills a list with a column of the history.
  local function read(list, column)
    local place, eight, one, upto = column.at, column.eight, column.one, #history / ENTRY_BYTES
    local i, _ = 1, nil
    -- The bytes behind the eighth end within the ninth.
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

  -- Sums up costs that are not all 1.
  local function read_costs()
    totals = {}
    read(totals, COST)
    local sum = 0
    for i = 1, count do
      -- Entries that were added while all cost 1 are not in the column.
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
    -- A long string is read from the key, hashed, and searched for ids.
    work = work + count / 4
  end

  -- Whether a cap counts the entry at `i`.
  local function counts(cap, campaign, i)
    if cap.same and campaigns[i] ~= campaign and campaigns[i] ~= CAMPAIGN_OVERFLOW then
      return false
    elseif not cap.kinds then
      return true
    end
    local counted = cap.kinds[kinds[i]]
    stale = stale or counted == nil
    return counted
  end

  -- For each entry, the sum of the costs up to it that the cap counts.
  local function sums_of(cap, campaign)
    if cap.plain then
      return totals
    end
    -- No campaign's key is that of a filter alone.
    local key = cap.same and -1 - cap.filter * 16777216 - campaign or cap.filter
    local sums = partial[key] or { [0] = 0, upto = 0 }
    partial[key] = sums
    local upto = sums.upto
    if upto == count then
      return sums
    end
    if cap.kinds and not kinds[1] then
      read(kinds, KIND)
    end
    if cap.same and not campaigns[1] then
      read(campaigns, CAMPAIGNS)
    end
    local sum = sums[upto]
    for i = upto + 1, count do
      if counts(cap, campaign, i) then
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

  -- How much of a cap is used, the time of the entry that has to leave its window before the send fits (nil where it never fits), and
  -- when it has left; nil where the send fits now.
  local function denial_of(cap, cost, campaign, at, from)
    local limit, sums = cap.limit, sums_of(cap, campaign)
    -- All that a filter counts is no less than what it counts in a window.
    if sums[count] + cost <= limit then
      return nil
    end
    work = work + 3
    local opens
    if cap.length then
      opens = at - cap.length + 1
    else
      opens = at < cap.next and cap.start or cap.next
    end
    local first = first_at_least(times, opens, from, count)
    local used = sums[count] - sums[first - 1]
    if used + cost <= limit then
      return nil
    elseif cost > limit then
      return used, nil, HUGE
    end
    local blocking = times[first_at_least(sums, sums[count] + cost - limit, first, count)]
    return used, blocking, freed_at(cap, blocking)
  end

  -- The caps alone: code, cap, used, blocking. Of the caps that deny, the one that has room last; of equals the first.
  local function evaluate(caps, cost, campaign, at, from)
    local code, worst, worst_used, worst_blocking, worst_freed = ALLOWED, 0, 0, nil, -1
    local all = totals[count] + cost
    for c = 1, #caps do
      local used, blocking, freed
      if all > caps[c].limit then
        used, blocking, freed = denial_of(caps[c], cost, campaign, at, from)
      end
      if used and freed > worst_freed then
        code, worst, worst_used, worst_blocking, worst_freed = DENIED, c - 1, used, blocking, freed
      end
    end
    work = work + #caps / 4
    return code, worst, worst_used, worst_blocking
  end

  -- REPLAYED and which entry it is, DUPLICATE, or nothing; of the entries in a string that lies `before` bytes behind the begin of
  -- the history, from the byte `from` on.
  local function seen_in(entries, before, from, id, origin)
    local code
    local place = find_entry(entries, id, ID_AT, from)
    while place do
      if sub(entries, place + 11, place + 13) == origin then
        return REPLAYED, (before + place - 1) / ENTRY_BYTES + 1
      end
      code = DUPLICATE
      place = find_entry(entries, id, ID_AT, place + ENTRY_BYTES)
    end
    return code
  end

  local function seen(id, origin, from)
    local code, i = seen_in(history, 0, (from - 1) * ENTRY_BYTES + 1, id, origin)
    if code ~= REPLAYED and added ~= '' then
      local later, later_i = seen_in(added, #history, 1, id, origin)
      code, i = later or code, later_i
    end
    work = work + floor(count / 32)
    return code, i
  end

  -- `entries` with these numbers of kind and campaign in the entry that lies behind `place` bytes; nil where it has them.
  local function with_class(entries, place, class)
    if sub(entries, place + 15, place + 19) ~= class then
      return sub(entries, 1, place + 14) .. class .. sub(entries, place + 20)
    end
  end

  -- Gives an entry these numbers. Returns whether it had others: the tables of names were lost before the record with its numbers
  -- was committed, and its names have other numbers now.
  local function renumber(i, class, kind, campaign)
    local place = (i - 1) * ENTRY_BYTES
    local new_history = place < #history and with_class(history, place, class)
    local new_added = place >= #history and with_class(added, place - #history, class)
    if not new_history and not new_added then
      return false
    end
    history, added, partial = new_history or history, new_added or added, {}
    kinds[i], campaigns[i] = kinds[i] and kind, campaigns[i] and campaign
    return true
  end

  local function reply(send, code, cap, used, at, blocking)
    replies[replied + 1], replies[replied + 2] = send * 65536 + code * 256 + cap, used
    replies[replied + 3], replies[replied + 4] = at, blocking
    replied = replied + 4
  end

  -- Puts an entry behind the entry at `newest`. The entries before `kept` are not written back.
  local function record(entry, newest, kept, at, kind, campaign, cost)
    if newest < count then
      -- Entries far ahead of the clock stay behind the new one.
      local cut, whole = newest * ENTRY_BYTES, history .. added
      local packed = sub(whole, (kept - 1) * ENTRY_BYTES + 1, cut) .. entry .. sub(whole, cut + 1)
      load_history(sub(packed, -max_entries * ENTRY_BYTES), ones and cost == 1)
      return
    end
    if ones and cost ~= 1 then
      read_costs()
    end
    count, gone = count + 1, kept - 1
    added, times[count], kinds[count], campaigns[count] = added .. entry, at, kind, campaign
    if not ones then
      totals[count] = totals[count - 1] + cost
    end
  end

  -- Decides the send at `s` of the sends. Returns whether the history has changed, and whether the key's time to
  -- live must be renewed.
  local function decide(s)
    local plan, id, rest = abs(sends[s + 1]), sends[s + 2], sends[s + 3]
    local kind, campaign, cost = unpack_struct('>I2I3B', rest, 4)
    local newest = count
    while newest > gone and times[newest] > horizon do
      newest = newest - 1
    end
    work = work + count - newest
    local at = newest > gone and times[newest] > now and times[newest] or now
    local ahead = newest < count and AHEAD or 0
    local from = first_at_least(times, at + 1 - retention, gone + 1, count)

    local code, entry = seen(id, sub(rest, 1, 3), from)
    if code == REPLAYED then
      reply(s / 3, REPLAYED + ahead, 0, 0, times[entry], 0)
      local renumbered = sub(rest, 1, 3) ~= NO_RECORD and renumber(entry, sub(rest, 4, 8), kind, campaign)
      return renumbered or touch == 1, false
    end
    local cap, used, blocking = 0, 0, nil
    if not code then
      code, cap, used, blocking = evaluate(sets[terms[plan + CAP_SET]], cost, campaign, at, from)
    end
    local recorded = not stale and (code == ALLOWED or terms[plan + ALWAYS] == 1)
    -- The first entry that stays when this one is recorded: too old ones go, and of the rest the oldest where there are too many.
    local kept = recorded and max(from, count + 2 - max_entries) or from
    local dropped = kept > from and DROPPED or 0
    if code ~= ALLOWED or ahead > 0 or at > now or dropped > 0 then
      reply(s / 3, code + ahead + dropped + (blocking and BLOCKING or 0), cap, used, at, blocking or 0)
    end
    if not recorded then
      return false, false
    end
    local renew = newest < from or times[newest] < block
    local packed_at = at == now and packed_now or pack('>I5', at)
    record(packed_at .. id .. rest, newest, kept, at, kind, campaign, cost)
    return true, renew
  end

  local function refuse(code, s, upto)
    for send = s / 3, upto / 3 - 1 do
      reply(send, code, 0, 0, 0, 0)
    end
  end

  -- Decides the sends from `begin` to `upto`. Returns as `decide`; nil where a filter met a kind that the caller does not know.
  local function decide_all(begin, upto, is_first)
    local s, dirty, renew = begin, false, false
    while s < upto do
      if s > begin and work > budget then
        refuse(LATER, s, upto)
        break
      end
      local changed, renewed = decide(s)
      if is_first then
        budget, is_first = max(MAX_WORK, 2 * work), false
      end
      dirty, renew = dirty or changed, renew or renewed
      s = s + 3
    end
    if stale then
      return nil
    end
    return dirty, renew
  end

  -- The history to be written.
  local function pack_history()
    local plain = totals[count] - totals[gone] == count - gone
    -- Cut behind the join: entries that the call has added go, too, where they alone are too many.
    return sub(history .. added .. (plain and '' or FLAG), gone * ENTRY_BYTES + 1)
  end

  -- Decides the sends of one user from place `s` of the sends on. Returns the history to be written, if it changed; whether the key's
  -- time to live must be renewed; and where the user's sends and the reply end.
  return function(packed, s, replied_before, block_of_key)
    replied, block = replied_before, block_of_key
    local upto = s + 3
    while sends[upto - 2] < 0 do
      upto = upto + 3
    end
    -- A user takes at least a step per entry.
    local is_first = work == 0
    if not is_first and work + #packed / ENTRY_BYTES > budget then
      refuse(LATER, s, upto)
      return nil, false, upto, replied
    end
    local entries, flag = split_flag(packed)
    if not entries then
      refuse(TORN, s, upto)
      return nil, false, upto, replied
    end
    stale = false
    load_history(entries, flag == '')
    local dirty, renew = decide_all(s, upto, is_first)
    if dirty == nil then
      replied = replied_before
      refuse(STALE, s, upto)
      return nil, false, upto, replied
    end
    return dirty and pack_history(), renew, upto, replied
  end
end

