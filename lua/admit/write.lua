-- Writes the histories, renews and sweeps keys, and replies.
--
-- The time to live, and the sweep: a user's first entry in a block of the key (a retention long) makes the key outlast two
-- retentions, and the call then looks at all users of the key: those without an entry in the last retention are deleted, since
-- they may never come back, and others renew the key. The key is marked, so that the rest of its block costs one HGET for each
-- such user. A call looks at one key, and at more until it has seen 96 users, which bounds it; a skipped key waits for its next
-- user. So in each block a key has as many tries as users come, in calls that each take three keys or more of those that are
-- due, starting at another one each time. A key of more than 1,024 users (redis.users was far too low) is not swept.

-- Deletes the users of a key whose newest entry is too old. Returns how many users it had.
local function sweep(key, too_old)
  local MAX_SWEPT = 1024
  local users = redis.call('HLEN', key)
  if users > MAX_SWEPT then
    return users
  end
  local all, dead, count = redis.call('HGETALL', key), {}, 0
  for n = 2, #all, 2 do
    local bytes = #all[n]
    local newest = bytes % 20 < 2 and bytes - bytes % 20 - 19
    if newest and newest > 0 and struct.unpack('>I5', all[n], newest) <= too_old then
      count = count + 1
      dead[count] = all[n - 1]
    end
  end
  if count > 0 then
    redis.call('HDEL', key, unpack(dead))
  end
  return users
end

-- The field of a key's last sweep, and the users that a call looks at.
local MARK, MAX_LOOKED_AT = '', 96

local begin, due, dues = 0, nil, 0
for k = 1, hashes do
  local last = users_of[k]
  if last > begin then
    local key, block = KEYS[before_keys + k], renewals[k]
    call('HSET', key, unpack(sends, begin + 1, last))
    local mark = block and call('HGET', key, MARK)
    local marked_at = mark and unpack_struct('>I5', mark)
    -- A mark far ahead of the clock does not count.
    if block and (not marked_at or marked_at < block or marked_at > now + 300000) then
      call('PEXPIRE', key, time_to_live)
      due, dues = due or {}, dues + 1
      due[dues] = key
    end
    begin = last
  end
end
-- Starts at another key each time, so that none is always skipped.
local looked_at = 0
for n = 1, dues do
  if looked_at < MAX_LOOKED_AT then
    local key = due[(now + n) % dues + 1]
    looked_at = looked_at + sweep(key, too_old)
    call('HSET', key, MARK, packed_now)
  end
end
return struct.pack('>I2' .. string.rep('I4I4I5I5', replied / 4), s / 3, unpack(replies, 1, replied))
