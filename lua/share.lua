-- share: one turn of an instance of weir at a service: gives it a share of what is registered, and hands ends of admissions on.
--
-- The rule: the members share the rate and the concurrency, each by what they want (share/fair.lua); a share grows only into what the
-- records of all others leave. A record counts the largest share that can be in force from a second before its turn until its next one.
-- Without another turn, the share is in force until the end of the lease; then its rate counts for a second longer, and its concurrency for
-- the longest timeout. A turn that is repeated gets the shares that it had, and notes no time and hands no end on again; one that comes
-- behind a later one has no effect. It equals `ServiceBook` (crates/oracle/src/service/book.rs), which says why the sum is never more than what
-- is registered.
--
-- KEYS  [1]     the registry (services/registry.lua)
--       [2]     the members, a hash: holder -> a member (share/members.lua) until nothing of it counts: the rate that counts, and the one
--               wanted; behind these until when that rate counts, the rate given, the concurrency that counts, the one wanted, until when it
--               counts, the one given, and the end of the lease, times in ms since 1970. A holder is one run of a process
--       [3]     the ends, a hash: holder -> `<number>[:<took ms>] ` for each end that waits for it
-- ARGV  [1]     the holder
--       [2]     the run of its process that the turn is of, decimal, above 0
--       [3]     the number of the turn, decimal: higher than that of each turn of the run before; 0: only read, nothing is written
--       [4]     the rate held: the largest share in force within the last second      [5] the rate wanted
--       [6]     the concurrency held: the share in force, or admissions that have not ended, whichever is more      [7] wanted
--       [8]     admissions whose processing time is reported      [9] the sum of these times in ms
--       [10]    bytes of ends in its last reply, which it has taken
--       [11]    how long the lease lasts, in ms
--       [12..]  ends to hand on, two arguments each: the holder, the ends as in KEYS[3]
-- Reply: empty where the turn comes behind a later one. Else [1] the rate, [2] the concurrency, of ARGV[3] = 0: what all records count,
--        [3] instances, [4] their capacity per second, [5] their concurrency, [6] their longest timeout in ms, [7] members, [8] in how many
--        ms shares may grow, [9] the mean processing time in microseconds, [10] the server's clock in ms since 1970, [11] ends for this
--        holder; of ARGV[3] = 0 then the live instances: name, value, name, ...
--
-- Example: EVALSHA <sha> 3 weir:{12}:service:email weir:{12}:service:email:members weir:{12}:service:email:ends 5f0c 1 7 250 900 60 61 4 48
--          0 3000  ->  500, 100, 2, 1000, 400, 10000, 2, 0, 12000, 1795132800123, ''

local SECOND_MS, ENDS_BYTES = 1000, 1048576
local max, min = math.max, math.min

if #KEYS ~= 3 or #ARGV < 11 or #ARGV % 2 ~= 1 then
  return redis.error_reply('ERR share takes 3 keys, and 11 arguments and two for each holder of ends, not ' .. #ARGV)
end
local registry_key, members_key, ends_key, own = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local run, turn, lease_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[11])
local now = server_clock()
local registry = read_registry(registry_key, now)

-- The records that count still, each as it is written: rate and busy are what counts, until when, what is wanted, and what was given.
local found = read_members(redis.call('HGETALL', members_key), '', own, now)
local before, live = found.own, 0

local function parts_of(member)
  local rate_till, rate, busy, busy_wanted, busy_till, busy_given, lease_ends = unpack(member.more)
  member.rate = { counts = member.held, till = rate_till, wanted = member.wanted, given = rate }
  member.busy = { counts = busy, till = busy_till, wanted = busy_wanted, given = busy_given }
  member.lease_ends = lease_ends
  if lease_ends > now then
    live = live + 1
  end
end
for _, member in ipairs(found.others) do
  parts_of(member)
end
if before then
  parts_of(before)
end

local function counted(part)
  return part.till > now and part.counts or 0
end

local starts_in = 0
if registry.since then
  starts_in = max(0, registry.since + lease_ms + SECOND_MS - now)
end

if turn == 0 then
  local rate, busy = 0, 0
  for _, members in ipairs({ found.others, { before } }) do
    for _, member in ipairs(members) do
      rate, busy = rate + counted(member.rate), busy + counted(member.busy)
    end
  end
  local reply = { rate, busy, registry.instances, registry.per_s, registry.concurrency, registry.timeout_ms }
  reply[7], reply[8], reply[9], reply[10], reply[11] = live, starts_in, registry.took_us, now, ''
  for at, text in ipairs(registry.live) do
    reply[11 + at] = text
  end
  return reply
end
local order = turn_order(before, run, turn)
if order and order ~= 'same' then
  return {}
end

-- The share of a total, and what its record counts.
local function share(total, part, held, wanted)
  if order == 'same' then
    return before[part].given, before[part].counts
  end
  local wanting, others = {}, 0
  for _, member in ipairs(found.others) do
    others = others + counted(member[part])
    if member.lease_ends > now then
      wanting[#wanting + 1] = { name = member.name, wanted = member[part].wanted }
    end
  end
  if before then
    held = min(held, counted(before[part]))
  elseif starts_in == 0 then
    held = 0
  end
  -- While others may hold shares that nobody knows of, nobody gets more than it has.
  local given = grow(starts_in == 0 and total or 0, others, held, fair_share(total, own, wanted, wanting, now))
  return given, max(given, held)
end

local rate, rate_counts = share(registry.per_s, 'rate', tonumber(ARGV[4]), tonumber(ARGV[5]))
local busy, busy_counts = share(registry.concurrency, 'busy', tonumber(ARGV[6]), tonumber(ARGV[7]))
local lease_ends = now + lease_ms
local rate_till = lease_ends + SECOND_MS
local busy_till = max(before and before.busy.till or 0, lease_ends + registry.timeout_ms)
if not before or before.lease_ends <= now then
  live = live + 1
end

-- Write.
for _, name in ipairs(found.gone) do
  redis.call('HDEL', members_key, name)
  redis.call('HDEL', ends_key, name)
end
local member = { run = run, turn = turn, ends = max(rate_till, busy_till), held = rate_counts, wanted = tonumber(ARGV[5]) }
member.more = { rate_till, rate, busy_counts, tonumber(ARGV[7]), busy_till, busy, lease_ends }
write_member(members_key, own, member)
local keep_ms = max(rate_till, busy_till) - now + SECOND_MS
keep_for(members_key, keep_ms)

local is_member = { [own] = true }
for _, member in ipairs(found.others) do
  is_member[member.name] = true
end
local function hand_on(holder, ends)
  local waiting = is_member[holder] and (redis.call('HGET', ends_key, holder) or '')
  if waiting and #waiting + #ends <= ENDS_BYTES then
    redis.call('HSET', ends_key, holder, waiting .. ends)
    keep_for(ends_key, keep_ms)
  end
end
local taken = 0
if order ~= 'same' then
  note_times(registry_key, registry, tonumber(ARGV[8]), tonumber(ARGV[9]))
  for at = 12, #ARGV, 2 do
    hand_on(ARGV[at], ARGV[at + 1])
  end
  taken = tonumber(ARGV[10])
end
-- Where the ends were lost and are others now, they are handed out again: an end that comes twice has no effect.
local ends = redis.call('HGET', ends_key, own) or ''
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
