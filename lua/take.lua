-- take: grants tokens of one budget to one lease holder.
--
-- The rule: a holder gets what it wants up to left / (2 x holders), which is never more than a fair part (share/fair.lua), or else what
-- it needs up to left, rounded down to a multiple of the unit. A grant in a rolling window counts until the end of its lease + the
-- window, so no window of approvals ever holds more than the limit; one for a period or in total counts there. A turn that is repeated
-- gets the grant that it had, and grants nothing more: a holder's last turn is known for an hour. It equals `Book::take`
-- (crates/core/src/ledger/book.rs).
--
-- KEYS  [1]     the shard's epoch; absent while the shard's slot moves, where the caller has read it by itself
--       [2]     of a total of a campaign: the register of the shard's totals of campaigns, a hash: the budget's key -> when it was last
--               asked for tokens, in ms since 1970; below 0: it was found spent then. Absent while the slot moves
--       [3]     of one, too: the marks of those that are gone, a text of bits (make_room.lua)
--       [#KEYS] the budget, a hash:
--                 <bucket>   tokens of a rolling window whose leases end in that bucket: the end of the lease, rounded up to a
--                            multiple of max(1, floor(window / 60)), in ms since 1970, so that it is right for any window
--                 p<start>   tokens of the calendar period that begins then, in ms since 1970
--                 t          tokens of all time
--                 h<holder>  a holder's leases, `<end>:<tokens>` ascending, a space between two: the end of the lease, rounded
--                            up to a multiple of a fourth of its length, in ms since 1970, and the tokens granted in it
--                 n<holder>  a holder's last turn, as a member (share/members.lua): it holds the tokens of that turn's grant, and wants
--                            0; behind these the grant's bucket. Up to 64 bytes, a hash of few fields stays compact
--                 g<holder>  the same of give_back.lua: the tokens that were taken back; the bucket is 0
--                 x          closed until a rebuild has counted again; why
--                 s          since when its tokens are counted, in ms since 1970: when the key was new, or when a rebuild wrote it.
--                            Tokens that were spent before, and that the rebuild did not see, are not in it
-- ARGV  [1]     what the epoch has to be
--       [2]     the holder
--       [3]     what the budget looks back over: `r` a rolling window, `p` a calendar period, `t` all time
--       [4]     r: the window in ms; p: the period's start in ms since 1970; t: 0
--       [5]     p: its end in ms since 1970; else 0
--       [6]     the limit
--       [7]     tokens needed
--       [8]     tokens wanted, 0: only read, nothing is written
--       [9]     the unit, above 0
--       [10]    the least that is of use, above 0
--       [11]    how long the lease lasts, in ms, above 0
--       [12]    the time in ms since 1970, by the caller's clock, which most others agree with
--       [13]    the run of the holder's process that the turn is of, decimal, above 0; 0: the call has no number
--       [14]    the number of the turn, decimal: higher than that of each turn of the run before
--       [15]    of a total of a campaign: how many of these the shard may have, decimal; else 0
--       [16..19] of one: the places of its four bits among the marks, from 0, decimal
-- Reply: [1] tokens granted, [2] tokens used (these included), [3] those of them in leases that have not ended, [4] the bucket of
--        the grant (p: the period's start, t: 0), [5] in how many ms the least is left, 0: now, -1: never by waiting,
--        [6] the server's clock in ms since 1970, [7] since when tokens are counted, in ms since 1970, 0: for ever.
-- Error: LOSTHISTORY when the epoch is another, BUDGETCLOSED <why> when the budget is closed, WRONGCLOCK when the server's clock is
--        more than 5 minutes from the caller's: a node that is a window ahead would free all buckets, TOTALSFULL when the shard has no
--        room for another total of a campaign, TRYAGAIN when that is not known while the slot moves. Nothing was written.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:b6:spring <epoch> weir-0 r 3600000 0 1000000 40 5000 1000 1 5000 1795132800110
--            1795132700000 7 0
--            ->  5000, 5000, 5000, 1795132860000, 0, 1795132800123, 1795132800123
--
-- All reading and deciding comes before the first write. Limits up to 10^15 are exact in Lua's numbers.

local HOUR_MS, DAY_MS, MAX_SKEW_MS, BUCKETS = 3600000, 86400000, 300000, 60
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

if #ARGV ~= 15 and #ARGV ~= 19 then
  return redis.error_reply('ERR take takes 15 or 19 arguments, not ' .. #ARGV)
end
local wrong = #KEYS > 1 and epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local key, own_field, turn_field, kind = KEYS[#KEYS], 'h' .. ARGV[2], 'n' .. ARGV[2], ARGV[3]
local from, to, limit, need, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local unit, least, lease_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local run, turn, most_totals = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local now = server_clock()
local ahead = now - tonumber(ARGV[12])
if max(ahead, -ahead) > MAX_SKEW_MS then
  local way = ahead > 0 and ' s ahead of' or ' s behind'
  return redis.error_reply('WRONGCLOCK its clock is ' .. whole(floor(max(ahead, -ahead) / 1000)) .. way .. ' most others')
end

-- What the hash holds: the tokens of each field that counts, and the fields that no longer do.
local used, tokens_in, buckets, dropped = 0, {}, {}, {}
local holders, leased, own_leases, closed, has_total, since = 1, 0, {}, nil, false, 0

local function read_tokens(field, tokens)
  used, tokens_in[field] = used + tokens, tokens
end

local function read_bucket(field, tokens)
  if kind ~= 'r' then
    return
  elseif tonumber(field) + from > now then
    read_tokens(field, tokens)
    buckets[#buckets + 1] = tonumber(field)
  else
    dropped[#dropped + 1] = field
  end
end

local function read_period(field, tokens)
  if kind ~= 'p' then
    return
  elseif field == 'p' .. ARGV[4] then
    read_tokens(field, tokens)
  elseif tonumber(sub(field, 2)) < from and now >= from + HOUR_MS then
    -- It ended when this one began, at the latest; somebody whose clock is behind might still ask for it within the hour.
    dropped[#dropped + 1] = field
  end
end

local function read_holder(field, value)
  local leases, tokens = leases_at(value, now)
  if field == own_field then
    own_leases = leases
  elseif leases[1] then
    holders = holders + 1
  else
    dropped[#dropped + 1] = field
  end
  leased = leased + tokens
end

local hash = redis.call('HGETALL', key)
if #hash == 0 then
  since = now
end
for at = 1, #hash, 2 do
  local field, value = hash[at], hash[at + 1]
  local first = sub(field, 1, 1)
  if first == 'h' then
    read_holder(field, value)
  elseif first == 'p' then
    read_period(field, tonumber(value))
  elseif first == 'x' then
    closed = value
  elseif first == 's' then
    since = tonumber(value)
  elseif first == 't' then
    has_total = true
    if kind == 't' then
      read_tokens(field, tonumber(value))
    end
  elseif first ~= 'n' and first ~= 'g' then
    read_bucket(field, tonumber(value))
  end
end
local takes, returns = read_members(hash, 'n', ARGV[2], now), read_members(hash, 'g', ARGV[2], now)
if closed then
  return redis.error_reply('BUDGETCLOSED ' .. closed)
end

-- Whether all bits of this total are among the marks.
local function is_gone(marks)
  for at = 16, 19 do
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
  if #KEYS ~= 4 then
    return redis.error_reply('TRYAGAIN a new total of a campaign, while its slot moves')
  elseif is_gone(redis.call('GET', KEYS[3]) or '') then
    return { 0, limit, 0, 0, -1, now, now }
  elseif want > 0 and redis.call('HLEN', KEYS[2]) >= most_totals then
    return redis.error_reply('TOTALSFULL the shard has ' .. ARGV[15] .. ' totals of campaigns, and makes room for another')
  end
end

local order = want > 0 and run > 0 and turn_order(takes.own, run, turn) or nil
local is_repeated = order == 'same' or order == 'behind'
-- Where a grant is counted.
local width = max(1, floor(from / BUCKETS))
local granted, bucket = 0, kind == 'r' and ceil((now + lease_ms) / width) * width or from
if order == 'same' then
  granted, bucket = takes.own.held, takes.own.more[1]
elseif order == 'behind' then
  -- What it came to is not known any more.
  bucket = 0
elseif want > 0 then
  local left = max(0, limit - used)
  granted = min(want, floor(left / (2 * holders)))
  if granted < need then
    granted = min(need, left)
  end
  granted = granted - granted % unit
  granted = granted < least and 0 or granted
  used, leased = used + granted, leased + granted
end
local field = kind == 'r' and whole(bucket) or kind == 'p' and 'p' .. ARGV[4] or 't'
if granted > 0 and not is_repeated then
  if kind == 'r' and not tokens_in[field] then
    buckets[#buckets + 1] = bucket
  end
  tokens_in[field] = (tokens_in[field] or 0) + granted
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

local reply = { granted, used, min(leased, used), bucket, free_in(), now, since }
if want == 0 then
  return reply
elseif is_repeated then
  write_again(key, turn_field, takes.own, now)
  return reply
end
for _, fields in ipairs({ dropped, takes.gone, returns.gone }) do
  for _, field_gone in ipairs(fields) do
    redis.call('HDEL', key, field_gone)
  end
end
if most_totals > 0 and #KEYS == 4 then
  redis.call('HSET', KEYS[2], key, (limit - used < least and '-' or '') .. whole(now))
end
local quantum = max(1, floor(lease_ms / 4))
add_lease(own_leases, ceil((now + lease_ms) / quantum) * quantum, granted)
redis.call('HSET', key, own_field, leases_text(own_leases))
if run > 0 then
  write_turn(key, turn_field, run, turn, granted, bucket, now)
end
if #hash == 0 then
  redis.call('HSET', key, 's', whole(since))
end
if granted > 0 then
  redis.call('HSET', key, field, whole(tokens_in[field]))
end
-- The key outlives all that counts by a day, because a clock that is ahead ends it. It is never made to end earlier: another version of
-- the policy may look back further, and in total without end.
local ends_in = redis.call('PTTL', key)
if kind == 't' then
  if ends_in >= 0 then
    redis.call('PERSIST', key)
  end
elseif not has_total then
  local wanted = DAY_MS + (kind == 'r' and from + 2 * lease_ms + width or max(0, to - now) + HOUR_MS)
  if ends_in < wanted then
    redis.call('PEXPIRE', key, whole(wanted))
  end
end
return reply
