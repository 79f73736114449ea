-- zset_baseline: the published way to cap sends in Redis, kept as what weir's admit script is measured against.
--
-- One sorted set per user, one call per user. Not part of weir: only benches/system/zset.rs calls it.
--
-- The rule: a send is approved when the user's sends in each window, and this one, do not exceed the window's
-- limit; then it is recorded. The member is the intent's id and only the score is the time, so two sends of the same
-- millisecond are two members and neither is lost.
--
-- KEYS  [1]     the user's sorted set: intent id, by the time of its approval
-- ARGV  [1]     the clock, ms since 1970, decimal
--       [2]     the intent's id
--       [3..]   windows, longest last: length in ms, limit
-- Reply: 1 approved and recorded, 0 not.
--
-- It knows less than admit: every send costs 1, no filters, no calendar windows, no replay or duplicate, no epoch,
-- no answer to "when again". All of that would make it dearer.
--
-- Example: EVALSHA <sha> 1 z:42 1767225600000 i-1 86400000 2 604800000 5  ->  1

local key, now, last = KEYS[1], tonumber(ARGV[1]), #ARGV
local longest = tonumber(ARGV[last - 1])
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - longest)
for w = 3, last, 2 do
  local after = '(' .. string.format('%.0f', now - tonumber(ARGV[w]))
  if redis.call('ZCOUNT', key, after, '+inf') >= tonumber(ARGV[w + 1]) then
    return 0
  end
end
redis.call('ZADD', key, ARGV[1], ARGV[2])
redis.call('PEXPIRE', key, longest)
return 1
