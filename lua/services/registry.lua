-- services/registry: reads what the instances of a service have registered. weir puts it before each script that needs it (script.rs of
-- the Redis edge).

-- The registry at this time. Sums over its live instances: instances, per_s, concurrency. Their longest timeout_ms: no admission lasts
-- longer. Their shortest_timeout_ms: a caller may give up by then (nil: no instance). since: when the service became known (nil: it is
-- not). took_us: the mean time of its admissions and deliveries in microseconds (0: none has ended yet). live: the fields of its live
-- instances as they are in the hash (name, value, name, ...). gone: the names of those that have not renewed.
--
-- The registry is a hash: an instance -> `<capacity per second>:<concurrency>:<timeout>:<network>:<end>`, all times in ms, the end in ms
-- since 1970; `:since` and `:took`, which are no names of instances.
local function read_registry(key, now)
  local found = { instances = 0, per_s = 0, concurrency = 0, timeout_ms = 0, took_us = 0, live = {}, gone = {} }
  local hash = redis.call('HGETALL', key)
  for at = 1, #hash, 2 do
    local field, value = hash[at], hash[at + 1]
    local per_s, concurrency, timeout_ms, ends = value:match('^(%d+):(%d+):(%d+):%d+:(%d+)$')
    if field == ':since' then
      found.since = tonumber(value)
    elseif field == ':took' then
      found.took_us = tonumber(value)
    elseif not ends or tonumber(ends) <= now then
      found.gone[#found.gone + 1] = field
    else
      found.instances = found.instances + 1
      found.per_s, found.concurrency = found.per_s + per_s, found.concurrency + concurrency
      found.timeout_ms = math.max(found.timeout_ms, tonumber(timeout_ms))
      found.shortest_timeout_ms = math.min(found.shortest_timeout_ms or math.huge, tonumber(timeout_ms))
      found.live[#found.live + 1], found.live[#found.live + 2] = field, value
    end
  end
  return found
end

-- Takes processing times, so many with this sum in ms, into their mean, which is as if it had been of 20 before; of a service that is
-- known.
local function note_times(key, registry, count, sum_ms)
  if count > 0 and registry.since then
    local weight = registry.took_us == 0 and 0 or 20
    registry.took_us = math.floor((registry.took_us * weight + sum_ms * 1000) / (weight + count))
    redis.call('HSET', key, ':took', whole(registry.took_us))
  end
end

