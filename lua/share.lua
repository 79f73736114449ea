-- share: one turn of an instance of weir at a service: gives it a share of what is registered, and hands ends of admissions on.
--
-- The rule: the members share the rate and the concurrency, each max-min fair by what they want; a share grows only into what the records
-- of all others leave. A record counts the largest share that can be in force from a second before its turn until its next one. Without
-- another turn, the share is in force until the end of the lease; then its rate counts for a second longer, and its concurrency for the
-- longest timeout. It equals `Book::turn` (crates/core/src/service/book.rs), which says why the sum is never more than what is registered.
--
-- KEYS  [1]     the registry (services/registry.lua)
--       [2]     the members, a hash: holder -> `<turn>:<rate>:<wanted>:<until>:<concurrency>:<wanted>:<until>:<end of the lease>`, times in
--               ms since 1970
--       [3]     the ends, a hash: holder -> `<number>[:<took ms>] ` for each end that waits for it
-- ARGV  [1]     the holder
--       [2]     the number of the turn, higher than those of its turns before; 0: only read, nothing is written
--       [3]     the rate held: the largest share in force within the last second      [4] the rate wanted
--       [5]     the concurrency held: the share in force, or admissions that have not ended, whichever is more      [6] wanted
--       [7]     admissions whose processing time is reported      [8] the sum of these times in ms
--       [9]     bytes of ends in its last reply, which it has taken
--       [10]    how long the lease lasts, in ms
--       [11..]  ends to hand on, two arguments each: the holder, the ends as in KEYS[3]
-- Reply: empty where a later turn was taken before. Else [1] the rate, [2] the concurrency, of [2] = 0: what all records count,
--        [3] instances, [4] their capacity per second, [5] their concurrency, [6] their longest timeout in ms, [7] members, [8] in how many
--        ms shares may grow, [9] the mean processing time in microseconds, [10] the server's clock in ms since 1970, [11] ends for this
--        holder; of [2] = 0 then the live instances: name, value, name, ...
--
-- Example: EVALSHA <sha> 3 weir:{12}:service:email weir:{12}:service:email:members weir:{12}:service:email:ends 5f0c 7 250 900 60 61 4 48 0
--          3000  ->  500, 100, 2, 1000, 400, 10000, 2, 0, 12000, 1795132800123, ''

local SECOND_MS, ROTATE_MS, ENDS_BYTES = 1000, 10000, 1048576
local floor, max, min = math.floor, math.max, math.min

if #KEYS ~= 3 or #ARGV < 10 or #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR share takes 3 keys, and 10 arguments and two for each holder of ends, not ' .. #ARGV)
end
local registry_key, members_key, ends_key, own = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local number, lease_ms = tonumber(ARGV[2]), tonumber(ARGV[10])
local now = server_clock()
local registry = read_registry(registry_key, now)

-- The records that count still. rate and busy have what is counted, wanted, and until when.
local members, gone, before, live = {}, {}, nil, 0
local hash = redis.call('HGETALL', members_key)
for at = 1, #hash, 2 do
  local numbers = {}
  for word in hash[at + 1]:gmatch('%d+') do
    numbers[#numbers + 1] = tonumber(word)
  end
  local member = {
    number = numbers[1],
    rate = { counts = numbers[2], wanted = numbers[3], till = numbers[4] },
    busy = { counts = numbers[5], wanted = numbers[6], till = numbers[7] },
    lease_ends = numbers[8],
  }
  if max(member.rate.till, member.busy.till) <= now then
    gone[#gone + 1] = hash[at]
  else
    members[hash[at]] = member
    if member.lease_ends > now then
      live = live + 1
    end
  end
end
before = members[own]

local function counted(part)
  return part.till > now and part.counts or 0
end

local starts_in = 0
if registry.since then
  starts_in = max(0, registry.since + lease_ms + SECOND_MS - now)
end

if number == 0 then
  local rate, busy = 0, 0
  for _, member in pairs(members) do
    rate, busy = rate + counted(member.rate), busy + counted(member.busy)
  end
  local reply = { rate, busy, registry.instances, registry.per_s, registry.concurrency, registry.timeout_ms }
  reply[7], reply[8], reply[9], reply[10], reply[11] = live, starts_in, registry.took_us, now, ''
  for at, text in ipairs(registry.live) do
    reply[11 + at] = text
  end
  return reply
elseif before and before.number >= number then
  return {}
end

-- Those who want no more than an even part get that; the others share the rest evenly, and take turns at the remainder. Where all get what
-- they want, the surplus is shared evenly.
local function fair_share(total, wanting)
  table.sort(wanting, function(one, other)
    if one.want ~= other.want then
      return one.want < other.want
    end
    return one.name < other.name
  end)
  local left, rest, own_part, first = total, #wanting, 0, 1
  for at, one in ipairs(wanting) do
    if one.want > floor(left / rest) then
      break
    end
    left, rest, first = left - one.want, rest - 1, at + 1
    if one.name == own then
      own_part = one.want
    end
  end
  local turn = floor(now / ROTATE_MS)
  if rest == 0 then
    first, turn = 1, 0
  end
  local names = {}
  for at = first, #wanting do
    names[#names + 1] = wanting[at].name
  end
  table.sort(names)
  for rank, name in ipairs(names) do
    if name == own then
      local extra = (rank - 1 + turn) % #names < left % #names and 1 or 0
      return own_part + floor(left / #names) + extra
    end
  end
  return own_part
end

-- The share of a total, and what its record counts.
local function share(total, part, held, wanted)
  local wanting, others = { { name = own, want = wanted } }, 0
  for name, member in pairs(members) do
    if name ~= own then
      others = others + counted(member[part])
      if member.lease_ends > now then
        wanting[#wanting + 1] = { name = name, want = member[part].wanted }
      end
    end
  end
  local free = 0
  if starts_in == 0 then
    free = max(0, total - others)
  end
  if before then
    held = min(held, counted(before[part]))
  elseif starts_in == 0 then
    held = 0
  end
  local given = min(fair_share(total, wanting), max(held, free))
  return given, max(given, held)
end

local rate, rate_counts = share(registry.per_s, 'rate', tonumber(ARGV[3]), tonumber(ARGV[4]))
local busy, busy_counts = share(registry.concurrency, 'busy', tonumber(ARGV[5]), tonumber(ARGV[6]))
local lease_ends = now + lease_ms
local rate_till = lease_ends + SECOND_MS
local busy_till = max(before and before.busy.till or 0, lease_ends + registry.timeout_ms)
if not before or before.lease_ends <= now then
  live = live + 1
end
members[own] = before or {}

-- Write.
for _, name in ipairs(gone) do
  redis.call('HDEL', members_key, name)
  redis.call('HDEL', ends_key, name)
end
local record = { number, rate_counts, tonumber(ARGV[4]), rate_till, busy_counts, tonumber(ARGV[6]), busy_till, lease_ends }
for at, value in ipairs(record) do
  record[at] = whole(value)
end
redis.call('HSET', members_key, own, table.concat(record, ':'))
local keep_ms = max(rate_till, busy_till) - now + SECOND_MS
if redis.call('PTTL', members_key) < keep_ms then
  redis.call('PEXPIRE', members_key, whole(keep_ms))
end

note_times(registry_key, registry, tonumber(ARGV[7]), tonumber(ARGV[8]))

for at = 11, #ARGV, 2 do
  local holder, ends = ARGV[at], ARGV[at + 1]
  if members[holder] then
    local waiting = redis.call('HGET', ends_key, holder) or ''
    if #waiting + #ends <= ENDS_BYTES then
      redis.call('HSET', ends_key, holder, waiting .. ends)
      if redis.call('PTTL', ends_key) < keep_ms then
        redis.call('PEXPIRE', ends_key, whole(keep_ms))
      end
    end
  end
end
-- Where the ends were lost and are others now, they are handed out again: an end that comes twice has no effect.
local ends, taken = redis.call('HGET', ends_key, own) or '', tonumber(ARGV[9])
if taken > 0 and sub(ends, taken, taken) == ' ' then
  ends = sub(ends, taken + 1)
  if ends == '' then
    redis.call('HDEL', ends_key, own)
  else
    redis.call('HSET', ends_key, own, ends)
  end
end

local reply = { rate, busy, registry.instances, registry.per_s, registry.concurrency, registry.timeout_ms }
reply[7], reply[8], reply[9], reply[10], reply[11] = live, starts_in, registry.took_us, now, ends
return reply
