-- register: registers, renews or removes an instance of a service.
--
-- The rule: an instance is registered until its end, and counts in the sums until then. A service without instances is remembered for
-- a minute. It equals `ServiceBook::register` (crates/oracle/src/service/book.rs).
--
-- Nothing here has an epoch: a registry that is lost fills again with the next renewals.
--
-- KEYS  [1]     the registry (services/registry.lua)
-- ARGV  [1]     the instance
--       [2]     how long it is registered without another renewal, in ms; 0: it is removed
--       [3]     its capacity per second      [4] its concurrency      [5] its timeout in ms      [6] its network in ms; of [2] = 0: 0
--       [7]     the most instances of a service
-- Reply: [1] 1: registered, or it was until it was removed; 0: refused, or it was not, [2] live instances, [3] the sum of their
--        capacities, [4] of their concurrencies, [5] their longest timeout, [6] the server's clock in ms since 1970.
--
-- Example: EVALSHA <sha> 1 weir:{12}:service:email hedwig-0 30000 500 200 10000 50 1000  ->  1, 2, 1000, 400, 10000, 1795132800123

local KEEP_MS = 60000

if #KEYS ~= 1 or #ARGV ~= 7 then
  return redis.error_reply('ERR register takes 1 key and 7 arguments, not ' .. #ARGV)
end
local key, instance, lives_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now = server_clock()
local before = read_registry(key, now)
local others, was_registered = before.instances, 0
for at = 1, #before.live, 2 do
  if before.live[at] == instance then
    others, was_registered = others - 1, 1
  end
end

local done = was_registered
if lives_ms == 0 then
  redis.call('HDEL', key, instance)
elseif others >= tonumber(ARGV[7]) then
  done = 0
else
  done = 1
  local value = table.concat({ ARGV[3], ARGV[4], ARGV[5], ARGV[6], whole(now + lives_ms) }, ':')
  redis.call('HSET', key, instance, value)
  if not before.since then
    redis.call('HSET', key, ':since', whole(now))
  end
  keep_for(key, lives_ms + KEEP_MS)
end
for _, gone in ipairs(before.gone) do
  if gone ~= instance then
    redis.call('HDEL', key, gone)
  end
end
local after = read_registry(key, now)
return { done, after.instances, after.per_s, after.concurrency, after.timeout_ms, now }
