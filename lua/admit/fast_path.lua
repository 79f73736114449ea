-- The fast path: decides most sends by a few times of the history, without reading all of it.
--
-- It decides where each send costs 1 and the history is whole entries of cost 1, not long, and not ahead of the clock. A cap on
-- all sends then needs one look: at the entry that lies `limit` entries back. A cap with a filter needs a walk back from the
-- newest entry. All else is for the slow path, which also counts where more than a limit is used.

-- The longest history that it decides, in bytes: the work of a call has a bound.
local MAX_FAST_BYTES = 2560
-- The time of the newest entry of a user who has none; and of a history that the fast path does not decide.
local NEVER, UNKNOWN = -1e15, 1e15

-- A history without the entries that are too old; its bytes and its newest time.
local function without_old(unpack_struct, history, too_old)
  local bytes, gone, upto = #history, 0, #history / 20
  while gone < upto do
    local middle = math.floor((gone + upto) / 2)
    if unpack_struct('>I5', history, middle * 20 + 1) <= too_old then
      gone = middle + 1
    else
      upto = middle
    end
  end
  if gone == bytes / 20 then
    return '', 0, -1e15
  end
  return string.sub(history, gone * 20 + 1), bytes - gone * 20, unpack_struct('>I5', history, bytes - 19)
end

-- The walk of a cap with a filter, or of one campaign or a calendar window: the time of the entry that has to leave the window before
-- another send fits, and when it has; nil and 0 where one fits now; false where the slow path has to count. `more`: the place of the
-- cap's further numbers.
local function walk_back(unpack_struct, terms, filters, more, history, bytes, limit, length, rest)
  -- The further numbers:
  --   ENDS      when a calendar window ends; 0: a sliding window
  --   FILTER    its filter in ARGV[3], from 1; 0: all kinds count
  --   CAMPAIGN  1: only sends of the same campaign count
  local ENDS, FILTER, CAMPAIGN = 0, 1, 2
  -- Bytes of histories that all walks of a call may read: as long as 200 sends without a walk.
  local MAX_WALKED_BYTES, CAMPAIGN_OVERFLOW = 40000, 16777215
  filters.walked = filters.walked + bytes
  if filters.walked > MAX_WALKED_BYTES then
    return false
  end
  local filter, missing, blocking, opens = filters[terms[more + FILTER]], limit, nil, terms[1] - length
  local campaign = terms[more + CAMPAIGN] == 1 and unpack_struct('>I3', rest, 6) or nil
  for place = bytes - 19, 1, -20 do
    -- Where all older entries together do not reach the limit, none is read.
    if missing > place + 19 then
      return nil, 0
    end
    local time, _, kind, of = unpack_struct('>I5I9I2I3', history, place)
    if time <= opens then
      break
    end
    local counted = not filter or filter[kind]
    if counted == nil then
      return false
    elseif counted and (not campaign or of == campaign or of == CAMPAIGN_OVERFLOW) then
      missing, blocking = missing - 20, time
    end
  end
  if missing > 0 then
    return nil, 0
  elseif missing < 0 then
    return false
  end
  return blocking, terms[more + ENDS] > 0 and terms[more + ENDS] or blocking + length
end

-- Which cap denies a send, from 0, its limit, and the time of its blocking entry; nil where none does; false where the slow path has
-- to decide. Of the caps that deny, the one that has room last; of equals the first. `first` and `last`: where the list of caps
-- begins and ends in the terms.
local function denying_cap(walk_back, unpack_struct, terms, filters, first, last, now, history, bytes, rest)
  -- Numbers of a cap, from its place on:
  --   LIMIT     the limit
  --   LENGTH    how long before now its window begins
  --   MORE      the place of its further numbers in the terms; 0: a sliding window of all sends
  local LIMIT, LENGTH, MORE, CAP_NUMBERS = 0, 1, 2, 3
  -- A cap whose blocking entry has left its window by now has room.
  local worst, worst_blocking, worst_freed = nil, nil, now
  for cap = first, last, CAP_NUMBERS do
    local limit = terms[cap + LIMIT]
    local place, blocking, freed = bytes - limit, nil, 0
    if place >= 0 then
      local length, more = terms[cap + LENGTH], terms[cap + MORE]
      if more > 0 then
        blocking, freed = walk_back(unpack_struct, terms, filters, more, history, bytes, limit, length, rest)
      elseif place == 0 then
        blocking = unpack_struct('>I5', history)
        freed = blocking + length
      else
        local before, _, time = unpack_struct('>I5I15I5', history, place - 19)
        -- Where the entry before it is in the window, too, more than the limit is used.
        blocking, freed = before <= now - length and time, time + length
      end
      if blocking == false then
        return false
      elseif freed > worst_freed then
        worst, worst_blocking, worst_freed = cap, blocking, freed
      end
    end
  end
  if worst then
    return (worst - first) / CAP_NUMBERS, terms[worst + LIMIT], worst_blocking
  end
end

local filters, slow_path
-- Where in `sends` the next send begins, and where the fields and histories to be written end: they take the place of sends that
-- are decided.
local s, written = 0, 0
-- How many users are in the hashes before, and of each hash whose time to live is renewed, its block.
local before, renewals = 0, { nil, nil, nil, nil, nil, nil, nil, nil }
for k = 1, hashes do
  -- When the key's block of `retention` began; each key has its own, so that not all are swept at once.
  local users, block = users_of[2 * k - 1], now - (now + users_of[2 * k] * retention / 256) % retention
  local histories = call('HMGET', KEYS[before_keys + k], unpack(fields, before + 1, before + users))
  local renew = false
  for u = 1, users do
    local history, bytes, newest = histories[u], 0, NEVER
    if history then
      bytes = #history
      newest = bytes % 20 == 0 and bytes > 0 and unpack_struct('>I5', history, bytes - 19) or UNKNOWN
    end
    -- Entries that are too old are cut off first.
    local whole = newest <= now and bytes > 0 and bytes <= MAX_FAST_BYTES
    if whole and (bytes == 20 and newest or unpack_struct('>I5', history)) <= too_old then
      history, bytes, newest = without_old(unpack_struct, history, too_old)
    end
    local is_fast, dirty, more
    repeat
      local plan, id, rest = sends[s + 1], sends[s + 2], sends[s + 3]
      more = plan < 0
      if more then
        plan = -plan
      end
      local least, cap, limit, blocking = terms[plan + LEAST], nil, nil, nil
      is_fast = newest <= now and least > 0 and bytes <= MAX_FAST_BYTES and not (bytes > 0 and find(history, id, 1, true))
      if is_fast and bytes >= least then
        filters = filters or read_filters(ARGV[3])
        cap, limit, blocking =
          denying_cap(walk_back, unpack_struct, terms, filters, plan + CAPS, terms[plan + LAST], now, history, bytes, rest)
        is_fast = cap ~= false
      end
      if not is_fast then
        break
      end
      if cap then
        local DENIED_BEHIND = 3 + 32
        replies[replied + 1], replies[replied + 2] = s / 3 * 65536 + DENIED_BEHIND * 256 + cap, limit / 20
        replies[replied + 3], replies[replied + 4] = now, blocking
        replied = replied + 4
      end
      if not cap or terms[plan + ALWAYS] == 1 then
        renew = renew or newest < block
        history, bytes, newest, dirty = (history or '') .. packed_now .. id .. rest, bytes + 20, now, true
      end
      s = s + 3
    until not more
    if not is_fast then
      slow_path = slow_path or make_slow_path(terms, sends, replies, ARGV[3], read_filters, read_sets, split_flag, find_entry)
      local packed, renewed
      packed, renewed, s, replied = slow_path(dirty and history or histories[u] or '', s, replied, block)
      history, dirty, renew = packed or history, dirty or packed, renew or renewed
    end
    if dirty then
      sends[written + 1], sends[written + 2] = fields[before + u], history
      written = written + 2
    end
  end
  before, users_of[k], renewals[k] = before + users, written, renew and block
end
assert(s == #sends and before == #fields, 'there are more sends or users than their counts say')

