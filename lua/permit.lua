-- permit: one turn of an instance at the permits of a route: what it did not use is returned, and it is granted new ones.
--
-- The rule: free is the room less the caller's recent approvals and what other members hold or approved recently. A caller is
-- granted what it wants, at most free, and at most its share: (free + what the other members hold that want more) / (these and
-- the caller), or 1. A caller that has not used all of its last grant gets at most half of that while another member wants some
-- and holds nothing, since that one may know of less room. So members never hold more than the room, and none starves. The rate
-- is a bucket of at most one second's permits; the least factor of all members is what is left of it, 1 per second at the least.
-- An instance that was no member gets nothing: after a loss of the hash, it is not known what others hold. It equals
-- `PermitBook::turn` (crates/core/src/permits/book.rs).
--
-- What delivery takes is kept for instances that start: what an instance knows last, and the highest rate of each 6 minutes of the last
-- hour. Where the route is paced by another delivery than these are of, they are dropped.
--
-- Nothing here has an epoch: the room comes from Kafka's offsets, so a lost hash costs one turn, and the rates are measured again.
--
-- KEYS  [1]     the route, a hash:
--                 i<instance>  `<held>:<recent>:<want>:<slow>:<end>`: permits granted, approvals that may not be in the lag yet,
--                              permits wanted, the factor of its signals in thousandths, the end of its lease in ms since 1970
--                 b            the bucket of the rate: `<thousandths of permits>:<when, in ms since 1970>`
--                 d            `<delivery>:<rate>:<time>=<rate>,...`: what delivery takes, and the highest rates by when, in thousandths
--                              per second and units of 6 minutes since 1970; rate 0: not known
--       [2]     the registry of the route's service (lua/services/registry.lua); absent where the route has none
-- ARGV  [1]     the instance
--       [2]     how long its lease lasts, in ms, above 0
--       [3]     the room: ahead x drain rate - lag, at most 10^12
--       [4]     permits wanted
--       [5]     permits of the last grant that were not used
--       [6]     its recent approvals
--       [7]     the rate per second; '': any
--       [8]     the factor of its signals, in thousandths
--       [9]     deliveries whose processing time was reported      [10] the sum of these times in ms
--       [11]    the delivery that it is paced by, in hex digits    [12] what that takes, in thousandths per second, 0: not known
--       [13]    what was measured of it just now, likewise
-- Reply: [1] permits granted, [2] what other members hold, recent approvals included, [3] the members, this one included,
--        [4] what the service's instances have registered per second, -1: the route has no service, [5] their shortest timeout in
--        ms, -1: none, [6] their mean processing time in ms, -1: not known, [7] the least factor of all members, in thousandths,
--        [8] the server's clock in ms since 1970, [9] what delivery takes, in thousandths per second, 0: not known, [10] the highest
--        rate of the last hour, likewise.
--
-- Example: EVALSHA <sha> 1 weir:{12}:pemail weir-0 3000 14200 15000 20 480 500 1000 0 0 9f3c 480000 0
--          ->  300, 100, 2, -1, -1, -1, 1000, 1795132800123, 480000, 512000

-- How long the hash is kept without a turn, in ms: 7 days.
local KEEP_MS = 604800000
-- The highest rate of each such time is kept, in ms, and of so many before the one of now.
local BEST_EVERY_MS, BEST_KEPT = 360000, 10
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

if #KEYS < 1 or #KEYS > 2 or #ARGV ~= 13 then
  return redis.error_reply('ERR permit takes 1 or 2 keys and 13 arguments, not ' .. #KEYS .. ' and ' .. #ARGV)
end
local key, own_field = KEYS[1], 'i' .. ARGV[1]
local lease_ms, room, want, unused = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local recent, rate, slow = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local delivery, drain, measured = ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])
local now = server_clock()

-- Read: the other members, the bucket, and the rates.
local members, others_held, contenders, contended, one_without, held_before = 0, 0, 1, 0, false, nil
local least_slow, bucket, kept, dropped = slow, nil, nil, {}
local hash = redis.call('HGETALL', key)
for at = 1, #hash, 2 do
  local field, value = hash[at], hash[at + 1]
  if field == 'b' then
    bucket = value
  elseif field == 'd' then
    kept = value
  else
    local held, lately, wanted, factor, ends = value:match('^(%d+):(%d+):(%d+):(%d+):(%d+)$')
    if not held or tonumber(ends) <= now then
      dropped[#dropped + 1] = field
    elseif field == own_field then
      held_before = tonumber(held)
    else
      members, others_held, least_slow = members + 1, others_held + held + lately, min(least_slow, tonumber(factor))
      if tonumber(wanted) > tonumber(held) then
        contenders, contended = contenders + 1, contended + held
        one_without = one_without or tonumber(held) == 0
      end
    end
  end
end

-- A service without live instances has registered nothing: one permit per second tries it.
local service, registered, timeout_ms, processing_ms = nil, -1, -1, -1
if KEYS[2] then
  service = read_registry(KEYS[2], now)
  registered = service.per_s
  timeout_ms = service.shortest_timeout_ms or -1
  rate = min(rate or math.huge, max(1, registered))
end

-- The bucket holds thousandths of permits, so that each millisecond adds whole ones.
local tokens, units = math.huge, 0
if rate then
  rate = max(1, floor(rate * least_slow / 1000))
  local units_before, at = (bucket or ''):match('^(%d+):(%d+)$')
  units = (units_before or 0) + rate * max(0, now - (at or now)) + unused * 1000
  units = min(units, rate * 1000)
  tokens = floor(units / 1000)
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

local free = max(0, room - recent - others_held)
local share = max(1, floor((free + contended) / contenders))
local granted = held_before and min(want, free, share, tokens) or 0
if unused > 0 and one_without then
  granted = min(granted, floor((held_before or 0) / 2))
end

for _, gone in ipairs(dropped) do
  redis.call('HDEL', key, gone)
end
if rate then
  redis.call('HSET', key, 'b', whole(units - granted * 1000) .. ':' .. whole(now))
elseif bucket then
  redis.call('HDEL', key, 'b')
end
local fields = { whole(granted), whole(recent), whole(want), whole(slow), whole(now + lease_ms) }
local rates = delivery .. ':' .. whole(drain) .. ':' .. table.concat(bests, ',')
redis.call('HSET', key, own_field, table.concat(fields, ':'), 'd', rates)
redis.call('PEXPIRE', key, KEEP_MS)
if service then
  note_times(KEYS[2], service, tonumber(ARGV[9]), tonumber(ARGV[10]))
  if service.took_us > 0 then
    processing_ms = ceil(service.took_us / 1000)
  end
end
return { granted, others_held, members + 1, registered, timeout_ms, processing_ms, least_slow, now, drain, best }
