-- permit: one turn of an instance at the permits of a route: what it did not use is returned, and it is granted new ones.
--
-- The rule: what members may hold together is the room less all recent approvals. A caller is granted what it wants, at most its fair part
-- of that by what members want (share/fair.lua), or 1, and at most what the others leave of it. A caller that has not used all of its last
-- grant gets at most half of that while another member wants some and holds nothing, since that one may know of less room. So members never
-- hold more than the room, and none starves. The rate is a bucket of at most one second's permits; the least factor of all members is what
-- is left of it, 1 per second at the least. A caller is due what it returns and, whoever is first, its fair part by what members take of
-- what came in since its last turn; it may have a part of a permit in advance. What lies beyond three quarters of a second and a permit is
-- for anyone, all where it is alone. Who is due less than a permit leaves one to a member that is due one and holds none. An instance that
-- was no member gets nothing: after a loss of the hash, it is not known what others hold. Nor does it return anything: its permits ended
-- with its lease. A turn that is repeated gets the permits that it had, and returns none again; one that comes behind a later one has no
-- effect. It equals `RouteBook` (crates/core/src/limit/route/permits/book.rs).
--
-- What delivery takes is kept for instances that start: what an instance knows last, and the highest rate of each 6 minutes of the last
-- hour. Where the route is paced by another delivery than these are of, they are dropped.
--
-- Nothing here has an epoch: the room comes from Kafka's offsets, so a lost hash costs one turn, and the rates are measured again.
--
-- KEYS  [1]     the route, a hash:
--                 i<instance>  a member (share/members.lua) until its lease ends: the permits granted, and those wanted; behind these the
--                              approvals that may not be in the lag yet, the factor of its signals in thousandths, and in thousandths of
--                              permits: what it is due and 1000 more, and what it takes, which is what it wants less what it returned last
--                 b            the bucket of the rate: `<thousandths of permits>:<when, in ms since 1970>`
--                 d            `<delivery>:<rate>:<time>=<rate>,...`: what delivery takes, and the highest rates by when, in thousandths
--                              per second and units of 6 minutes since 1970; rate 0: not known
--       [2]     the registry of the route's service (lua/services/registry.lua); absent where the route has none
-- ARGV  [1]     the instance
--       [2]     the run of its process that the turn is of, decimal, above 0
--       [3]     the number of the turn, decimal: higher than that of each turn of the run before
--       [4]     how long its lease lasts, in ms, above 0
--       [5]     the room: ahead x drain rate - lag, at most 10^12
--       [6]     permits wanted
--       [7]     permits of the last grant that were not used
--       [8]     its recent approvals
--       [9]     the rate per second; '': any
--       [10]    the factor of its signals, in thousandths
--       [11]    deliveries whose processing time was reported     [12] the sum of these times in ms
--       [13]    the delivery that it is paced by, in hex digits    [14] what that takes, in thousandths per second, 0: not known
--       [15]    the highest rate that was measured of it and not told yet, likewise
-- Reply: empty where the turn comes behind a later one. Else [1] permits granted, [2] what other members hold, recent approvals
--        included, [3] the members, this one included, [4] what the service's instances have registered per second, -1: the route has no
--        service, [5] their shortest timeout in ms, -1: none, [6] their mean processing time in ms, -1: not known, [7] the least factor of
--        all members, in thousandths, [8] the server's clock in ms since 1970, [9] what delivery takes, in thousandths per second, 0: not
--        known, [10] the highest rate of the last hour, likewise.
--
-- Example: EVALSHA <sha> 1 weir:{12}:pemail weir-0 1795132700000 7 3000 14200 15000 20 480 500 1000 0 0 9f3c 480000 0
--          ->  300, 100, 2, -1, -1, -1, 1000, 1795132800123, 480000, 512000

-- How long the hash is kept without a turn, in ms: 7 days.
local KEEP_MS = 604800000
-- The highest rate of each such time is kept, in ms, and of so many before the one of now.
local BEST_EVERY_MS, BEST_KEPT = 360000, 10
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

if #KEYS < 1 or #KEYS > 2 or #ARGV ~= 15 then
  return redis.error_reply('ERR permit takes 1 or 2 keys and 15 arguments, not ' .. #KEYS .. ' and ' .. #ARGV)
end
local key, own = KEYS[1], ARGV[1]
local run, turn, lease_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local room, want, unused = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local recent, rate, slow = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local delivery, drain, measured = ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15])
local now = server_clock()

-- Read: the members, the bucket, and the rates.
local members = read_members(redis.call('HGETALL', key), 'i', own, now)
local order = turn_order(members.own, run, turn)
if order and order ~= 'same' then
  return {}
end
local is_same = order == 'same'
local bucket, kept = unpack(redis.call('HMGET', key, 'b', 'd'))
local others_held, others_recent, one_without, one_short, least_slow, taking = 0, 0, false, false, slow, {}
for _, member in ipairs(members.others) do
  local lately, factor, owed, takes = unpack(member.more)
  taking[#taking + 1] = { name = member.name, wanted = takes }
  others_held, others_recent, least_slow = others_held + member.held, others_recent + lately, min(least_slow, factor)
  one_without = one_without or member.wanted > 0 and member.held == 0
  one_short = one_short or member.wanted > 0 and member.held == 0 and owed >= 2000
end

-- A service without live instances has registered nothing: one permit per second tries it.
local service, registered, timeout_ms, processing_ms = nil, -1, -1, -1
if KEYS[2] then
  service = read_registry(KEYS[2], now)
  registered = service.per_s
  timeout_ms = service.shortest_timeout_ms or -1
  rate = min(rate or math.huge, max(1, registered))
end

-- The bucket holds thousandths of permits, so that each millisecond adds whole ones. Of the next permit it holds a part.
local tokens, units, due, takes = math.huge, 0, 1000, max(0, want - unused) * 1000
if rate then
  rate = max(1, floor(rate * least_slow / 1000))
  local units_before, at = (bucket or ''):match('^(%d+):(%d+)$')
  local returned = (members.own and not is_same) and unused * 1000 or 0
  units = (units_before or 0) + rate * max(0, now - (at or now)) + returned
  units = min(units, rate * 1000 + 999)
  if members.own then
    local since = max(0, min(1000, now + lease_ms - members.own.ends))
    due = members.own.more[3] + returned + fair_share(rate * since, own, takes, taking, now)
    tokens = floor(min(units, max(0, due - 1, #taking > 0 and units - rate * 750 - 1000 or units)) / 1000)
    if one_short and members.own.more[3] < 2000 then
      tokens = min(tokens, max(0, floor(units / 1000) - 1))
    end
  end
end

local kept_delivery, kept_drain, kept_best = (kept or ''):match('^(%x+):(%d+):([%d=,]*)$')
if kept_delivery ~= delivery then
  kept_drain, kept_best = 0, ''
end
drain = drain > 0 and drain or tonumber(kept_drain)
local place, best, bests = floor(now / BEST_EVERY_MS), measured, {}
for at, most in kept_best:gmatch('(%d+)=(%d+)') do
  at, most = tonumber(at), tonumber(most)
  if at == place then
    measured, best = max(measured, most), max(best, most)
  elseif at < place and at >= place - BEST_KEPT then
    bests[#bests + 1], best = whole(at) .. '=' .. whole(most), max(best, most)
  end
end
if measured > 0 then
  bests[#bests + 1] = whole(place) .. '=' .. whole(measured)
end

local granted = 0
if is_same then
  granted, takes = members.own.held, members.own.more[4]
elseif members.own then
  local total = max(0, room - recent - others_recent)
  local part = max(1, fair_share(total, own, want, members.others, now))
  granted = min(want, tokens, grow(total, others_held, 0, part))
  if unused > 0 and one_without then
    granted = min(granted, floor(members.own.held / 2))
  end
  due, takes = max(0, min(due - granted * 1000, 2000)), members.own.held > 0 and takes or members.own.more[4]
end

for _, field in ipairs(members.gone) do
  redis.call('HDEL', key, field)
end
if rate and not is_same then
  redis.call('HSET', key, 'b', whole(units - granted * 1000) .. ':' .. whole(now))
elseif bucket and not rate then
  redis.call('HDEL', key, 'b')
end
local member = { run = run, turn = turn, ends = now + lease_ms, held = granted, wanted = want, more = { recent, slow, due, takes } }
write_member(key, 'i' .. own, member)
redis.call('HSET', key, 'd', delivery .. ':' .. whole(drain) .. ':' .. table.concat(bests, ','))
redis.call('PEXPIRE', key, KEEP_MS)
if service then
  if not is_same then
    note_times(KEYS[2], service, tonumber(ARGV[11]), tonumber(ARGV[12]))
  end
  if service.took_us > 0 then
    processing_ms = ceil(service.took_us / 1000)
  end
end
return { granted, others_held + others_recent, #members.others + 1, registered, timeout_ms, processing_ms, least_slow, now, drain, best }
