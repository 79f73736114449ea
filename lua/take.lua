-- take: a turn of one lease holder at one budget: it gives tokens back, has those counted that replays owe, and is granted some.
--
-- The rule of grants: a holder gets what it wants up to left / (2 x holders), which is never more than a fair part (share/fair.lua), or
-- else what it needs up to left, rounded down to a multiple of the unit. A grant in a rolling window counts until the end of its lease +
-- the window, so no window of approvals ever holds more than the limit; one for a period or in total counts there.
--
-- The rule of what comes back: a field never falls below 0 and is never created, so tokens that no longer count are not given back.
-- Neither are those that were granted before the budget was counted again: that count has what was approved, and none of them.
--
-- The rule of what is owed: replays whose intents were admitted before the budget's count began took no tokens. They are spent, so they
-- count from now; where fewer are left, these are taken.
--
-- The rule of unknown campaigns: where a rebuild could not know which campaigns had used a budget, those without a key are closed: for ever,
-- or until what was used before no longer counts in the window or period.
--
-- A turn that is repeated gets the grant that it had, and does nothing more; one that comes behind a later one has no effect. One of a run
-- before the last one, late or of a process whose clock was set back, is granted tokens of its own: the last turn stays known, so it can be
-- repeated. It gives nothing back: it is not known whether that was done. A holder's last turn is known for an hour. It equals `TokenBook`
-- (crates/core/src/limit/budget/ledger/book.rs).
--
-- KEYS  [1]     the shard's epoch; absent while the shard's slot moves, where the caller has read it by itself
--       [2]     of a campaign's budget: the shard's unknown campaigns, a hash: the budget's name -> until when its campaigns without a key
--               are closed, in ms since 1970 (0: without end), a space, and why. Absent while the slot moves, where the caller has seen
--               that it has not this name
--       [3]     of a total of a campaign: the register of the shard's totals of campaigns, a hash: the budget's key -> when a turn
--               last wanted tokens or brought some back, or a rebuild wrote it, in ms since 1970; below 0: there were fewer than it wanted, or
--               the rebuild closed it. Absent while the slot moves
--       [4]     of one, too: the marks of those that are gone, a text of bits (make_room.lua)
--       [#KEYS] the budget, a hash:
--                 <bucket>   tokens of a rolling window whose leases end in that bucket: the end of the lease, rounded up to a
--                            multiple of max(1, floor(window / 60)), in ms since 1970, so that it is right for any window
--                 p<start>   tokens of the calendar period that begins then, in ms since 1970
--                 t          tokens of all time
--                 h<holder>  a holder, a member (share/members.lua): the tokens that its last turn was granted, and those wanted; behind
--                            these the bucket of that grant, when its last lease ends, in ms since 1970 (0: it has none), and the tokens
--                            that it had by that turn, with those granted
--                 x          closed until a rebuild has counted again; why
--                 o          opened by a rebuild; an x, and what it was closed with
--                 s          since when its tokens are counted, in ms since 1970: when the key was new, or when a rebuild wrote it.
--                            Tokens that were spent before, and that the rebuild did not see, are not in it
-- ARGV  [1]     the holder
--       [2]     the run of its process that the turn is of, decimal, above 0
--       [3]     the number of the turn, decimal: higher than that of each turn of the run before; 0: only read, nothing is written
--       [4]     what the epoch has to be
--       [5]     the time in ms since 1970, by the caller's clock, which most others agree with
--       [6]     what the budget looks back over: `r` a rolling window, `p` a calendar period, `t` all time
--       [7]     r: the window in ms; p: the period's start in ms since 1970; t: 0
--       [8]     p: its end in ms since 1970; else 0
--       [9]     the limit
--       [10]    tokens needed
--       [11]    tokens wanted; 0: none
--       [12]    the unit, above 0
--       [13]    the least that is of use, above 0
--       [14]    how long the lease lasts, in ms, above 0
--       [15]    tokens that the holder has; who has none and wants none is no holder by this turn
--       [16]    what is given back, a space between two: `<field>:<tokens>:<count>`; the count that they were granted in: field s then
--       [17]    what is owed, a space between two: `<tokens>:<how long ago their intents were admitted, in ms>`
--       [18]    of a total of a campaign: how many of these the shard may have, decimal; else 0
--       [19]    of a campaign's budget: the budget's name
--       [20..23] of a total of a campaign: the places of its four bits among the marks, from 0, decimal
-- Reply: empty where the turn comes behind a later one. Else [1] tokens granted, [2] tokens used (these included), [3] those of them that
--        holders have whose lease has not ended, [4] the bucket of the grant (p: the period's start, t: 0), [5] in how many ms the least is left, 0:
--        now, -1: never by waiting, [6] the server's clock in ms since 1970, [7] since when tokens are counted, in ms since 1970, 0: for
--        ever.
-- Error: LOSTHISTORY when the epoch is another, BUDGETCLOSED <why> when the budget is closed, or its campaign is unknown, WRONGCLOCK when
--        the server's clock is more than 5 minutes from the caller's: a node that is a window ahead would free all buckets, TOTALSFULL
--        when the shard has no room for another total of a campaign, TRYAGAIN when that is not known while the slot moves. Nothing was
--        written.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:b6:spring weir-0 1795132700000 7 <epoch> 1795132800110 r 3600000 0 1000000 40 5000 1000
--            1 36000 700 '1795132740000:800:1795132800123' '' 0
--            ->  5000, 5000, 5000, 1795132860000, 0, 1795132800123, 1795132800123
--
-- All reading and deciding comes before the first write. Limits up to 10^15 are exact in Lua's numbers.

local HOUR_MS, DAY_MS, MAX_SKEW_MS, BUCKETS = 3600000, 86400000, 300000, 60
-- How long a holder's last turn is known after it was made last.
local TURN_KEPT_MS = HOUR_MS
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

if #ARGV < 18 or #ARGV > 19 and #ARGV ~= 23 then
  return redis.error_reply('ERR take takes 18, 19 or 23 arguments, not ' .. #ARGV)
end
local wrong = #KEYS > 1 and epoch_error(redis.call('GET', KEYS[1]), ARGV[4])
if wrong then
  return wrong
end
local key, own_field, kind = KEYS[#KEYS], 'h' .. ARGV[1], ARGV[6]
local run, turn, from, to = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[7]), tonumber(ARGV[8])
local limit, need, want, unit = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local least, lease_ms, held, most_totals = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[18])
local now = server_clock()
local ahead = now - tonumber(ARGV[5])
if max(ahead, -ahead) > MAX_SKEW_MS then
  local way = ahead > 0 and ' s ahead of' or ' s behind'
  return redis.error_reply('WRONGCLOCK its clock is ' .. whole(floor(max(ahead, -ahead) / 1000)) .. way .. ' most others')
end

-- What the hash holds.
local hash = redis.call('HGETALL', key)
local holders = read_members(hash, 'h', ARGV[1], now)
local tokens_in, closed, since = {}, nil, #hash == 0 and now or 0
for at = 1, #hash, 2 do
  local field, value = hash[at], hash[at + 1]
  local first = sub(field, 1, 1)
  if first == 'x' then
    closed = value
  elseif first == 's' then
    since = tonumber(value)
  elseif first ~= 'h' and first ~= 'o' then
    tokens_in[field] = tonumber(value)
  end
end
local has_total = tokens_in.t ~= nil
if closed then
  return redis.error_reply('BUDGETCLOSED ' .. closed)
end
local unknown = #hash == 0 and #KEYS > 2 and redis.call('HGET', KEYS[2], ARGV[19])
if unknown then
  local ends, why = unknown:match('^(%d+) (.*)$')
  if ends == '0' or tonumber(ends) > now then
    return redis.error_reply('BUDGETCLOSED ' .. why)
  end
end
-- Nothing comes back where nothing was granted: who wants none and owes none only looks.
if #hash == 0 and want == 0 and ARGV[17] == '' then
  turn = 0
end

-- Whether all bits of this total are among the marks.
local function is_gone(marks)
  for at = 20, 23 do
    local place = tonumber(ARGV[at])
    local byte = string.byte(marks, floor(place / 8) + 1) or 0
    if floor(byte / 2 ^ (place % 8)) % 2 == 0 then
      return false
    end
  end
  return true
end

-- The total of a campaign never ends by itself, so a shard has a number of them. One that had to go stays spent.
if most_totals > 0 and #hash == 0 then
  if #KEYS ~= 5 then
    return redis.error_reply('TRYAGAIN a new total of a campaign, while its slot moves')
  elseif is_gone(redis.call('GET', KEYS[4]) or '') then
    return { 0, limit, 0, 0, -1, now, now }
  elseif turn > 0 and redis.call('HLEN', KEYS[3]) >= most_totals then
    return redis.error_reply('TOTALSFULL the shard has ' .. ARGV[18] .. ' totals of campaigns, and makes room for another')
  end
end

local order = turn > 0 and turn_order(holders.own, run, turn) or nil
if order == 'behind' then
  return {}
end
local is_new = turn > 0 and order ~= 'same'

-- How many share it, the caller included, and what the others have.
local sharing, leased = 1, 0
for _, other in ipairs(holders.others) do
  if other.more[2] > now then
    sharing, leased = sharing + 1, leased + other.more[3]
  end
end
-- When the caller's last lease ends, and what it has.
local ends, own_leased = 0, 0
if holders.own then
  ends, own_leased = holders.own.more[2], holders.own.more[3]
end

-- The fields that change, and whether tokens come back.
local written, has_back = {}, false
if is_new and order ~= 'run before' then
  for field, tokens, count in ARGV[16]:gmatch('(%S+):(%d+):(%-?%d+)') do
    local back = count == whole(since) and min(tokens_in[field] or 0, tonumber(tokens)) or 0
    if back > 0 then
      tokens_in[field] = tokens_in[field] - back
      written[#written + 1], has_back = field, true
    end
  end
end

-- Whether the tokens of a field count: true; false: they do no longer; nil: they are of another kind or period.
local function counts(field)
  local first = sub(field, 1, 1)
  if kind == 't' then
    return first == 't' or nil
  elseif kind == 'p' then
    if field == 'p' .. ARGV[7] then
      return true
    elseif first == 'p' and tonumber(sub(field, 2)) < from and now >= from + HOUR_MS then
      -- It ended when this one began, at the latest; somebody whose clock is behind might still ask for it within the hour.
      return false
    end
  elseif first ~= 'p' and first ~= 't' then
    return tonumber(field) + from > now
  end
end

local used, buckets = 0, {}
for at = 1, #hash, 2 do
  local field = hash[at]
  local tokens = tokens_in[field]
  local do_count = tokens and counts(field)
  if do_count and tokens > 0 then
    used = used + tokens
    buckets[#buckets + 1] = tonumber(field)
  elseif do_count == false and want > 0 then
    -- Who only gives back may do so in a shorter window than the one that is counted by now.
    tokens_in[field] = 0
    written[#written + 1] = field
  end
end

-- The bucket that counts at a time; and tokens that count there.
local width = max(1, floor(from / BUCKETS))
local function bucket_of(at)
  return kind == 'r' and ceil(at / width) * width or from
end
local function charge(bucket, tokens)
  if tokens <= 0 then
    return
  end
  local field = kind == 'r' and whole(bucket) or kind == 'p' and 'p' .. ARGV[7] or 't'
  local before = tokens_in[field] or 0
  if before == 0 and kind == 'r' then
    buckets[#buckets + 1] = bucket
  end
  tokens_in[field], used = before + tokens, used + tokens
  written[#written + 1] = field
end

local granted, bucket = 0, bucket_of(now + lease_ms)
if order == 'same' then
  granted, bucket = holders.own.held, holders.own.more[1]
elseif is_new then
  for tokens, ago in ARGV[17]:gmatch('(%d+):(%-?%d+)') do
    if max(0, now - since) < tonumber(ago) then
      charge(bucket_of(now), min(tonumber(tokens), max(0, limit - used)))
    end
  end
end
if is_new and want > 0 then
  local left = max(0, limit - used)
  granted = min(want, floor(left / (2 * sharing)))
  if granted < need then
    granted = min(need, left)
  end
  granted = granted - granted % unit
  granted = granted < least and 0 or granted
  charge(bucket, granted)
  ends = max(ends, now + lease_ms)
end
if is_new then
  own_leased = held + granted
  ends = (held > 0 or want > 0) and ends or 0
end

local function free_in()
  if limit - used >= least then
    return 0
  elseif kind == 't' or least > limit then
    return -1
  elseif kind == 'p' then
    return max(1, to - now)
  end
  table.sort(buckets)
  local over = used + least - limit
  for _, leaving in ipairs(buckets) do
    over = over - tokens_in[whole(leaving)]
    if over <= 0 then
      return leaving + from - now
    end
  end
end

if ends > now then
  leased = leased + own_leased
end
local reply = { granted, used, min(leased, used), bucket, free_in(), now, since }
if turn == 0 then
  return reply
elseif order == 'same' then
  local own = holders.own
  own.ends = now + TURN_KEPT_MS
  write_member(key, own_field, own)
  return reply
end
for _, field in ipairs(holders.gone) do
  redis.call('HDEL', key, field)
end
-- Who wants none and brings none back says nothing of whether a total is spent.
if most_totals > 0 and #KEYS == 5 and (want > 0 or has_back or not redis.call('HGET', KEYS[3], key)) then
  redis.call('HSET', KEYS[3], key, (want > 0 and limit - used < least and '-' or '') .. whole(now))
end
local member = order == 'run before' and holders.own
  or { run = run, turn = turn, ends = now + TURN_KEPT_MS, held = granted, wanted = want, more = { bucket } }
member.more = { member.more[1], ends, own_leased }
write_member(key, own_field, member)
if #hash == 0 then
  redis.call('HSET', key, 's', whole(since))
end
for _, field in ipairs(written) do
  if tokens_in[field] > 0 then
    redis.call('HSET', key, field, whole(tokens_in[field]))
  else
    redis.call('HDEL', key, field)
  end
end
-- The key outlives all that counts by a day, because a clock that is ahead ends it. It is never made to end earlier: another version of
-- the policy may look back further, and in total without end.
if kind == 't' then
  redis.call('PERSIST', key)
elseif not has_total then
  keep_for(key, DAY_MS + (kind == 'r' and from + 2 * lease_ms + width or max(0, to - now) + HOUR_MS))
end
return reply
