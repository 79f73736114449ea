-- The part of admit that goes through the users, decides what needs no walk, and writes.

local general

-- Where in `sends` the next send begins, and where what is to be written ends: it takes the place of sends that are decided.
local s, written = 0, 0
-- How many users are in the hashes before, and whether each hash's time to live is renewed.
local before, renewals = 0, { nil, nil, nil, nil, nil, nil, nil, nil }
for k = 1, hashes do
  -- Where the key's block of `retention` begins; each key has its own, so that not all are swept at once.
  local users, block = users_of[2 * k - 1], now - (now + users_of[2 * k] * retention / 256) % retention
  local histories = call('HMGET', KEYS[before_keys + k], unpack(fields, before + 1, before + users))
  local renew = false
  for u = 1, users do
    -- `newest`: the time of the newest entry, where the history is simple.
    local history, newest, dirty, more = histories[u], nil, false, false
    repeat
      local way, id, done = sends[s + 1], sends[s + 2], false
      more = way < 0
      if more then
        way = -way
      end
      local least = head[way]
      if least == 0 then
        -- Not simple.
      elseif not history then
        history, newest, dirty, renew, done = packed_now .. id .. sends[s + 3], now, true, true, true
      else
        local bytes = #history
        if not newest and bytes % 20 == 0 and bytes > 0 and bytes <= MAX_SIMPLE_BYTES then
          newest = unpack_struct('>I5', history, bytes - 19)
          -- What is too old is to be cut.
          if (bytes == 20 and newest or unpack_struct('>I5', history)) <= too_old then
            newest = nil
          end
        end
        if newest and newest <= now and not find(history, id, 1, true) then
          local denied, freed
          done = true
          if bytes >= least then
            for cap = way + 4, head[way + 3], 2 do
              local place = bytes - head[cap]
              if place >= 0 then
                local first = now - head[cap + 1]
                if place > 0 and unpack_struct('>I5', history, place - 19) > first then
                  -- More than the limit is used, so it is to be counted how much.
                  done = false
                  break
                end
                local freed_by = unpack_struct('>I5', history, place + 1) - first
                if freed_by > 0 and not (freed and freed_by <= freed) then
                  freed, denied = freed_by, cap
                end
              end
            end
            if done and denied then
              replies[replied + 1] = s / 3 * 65536 + DENIED_BEHIND * 256 + (denied - way) / 2 - 2
              replies[replied + 2] = head[denied] / 20
              replies[replied + 3], replies[replied + 4] = now, now - head[denied + 1] + freed
              replied = replied + 4
            end
          end
          if done and (not denied or head[way + 2] == 1) then
            renew = renew or newest < block
            history, newest, dirty = history .. packed_now .. id .. sends[s + 3], now, true
          end
        end
      end
      if done then
        s = s + 3
      else
        general = general or make_general(now, packed_now, retention, head, sends, replies)
        local packed, renewed
        packed, renewed, replied, s = general(history or '', s, replied, block)
        history, dirty, renew, more = packed or history, dirty or packed, renew or renewed, false
      end
    until not more
    if dirty then
      sends[written + 1], sends[written + 2] = fields[before + u], history
      written = written + 2
    end
  end
  before, users_of[k], renewals[k] = before + users, written, renew and block
end
assert(s == #sends and before == #fields, 'there are more sends or users than their counts say')

-- Deletes the users of a key whose newest entry is too old: they may never come back, and others renew the key. Returns how
-- many users it had.
local function sweep(key)
  local users = call('HLEN', key)
  if users > MAX_SWEPT then
    return users
  end
  local all, dead, count = call('HGETALL', key), {}, 0
  for n = 2, #all, 2 do
    local bytes = #all[n]
    local newest = bytes % 20 < 2 and bytes - bytes % 20 - 19
    if newest and newest > 0 and unpack_struct('>I5', all[n], newest) <= too_old then
      count = count + 1
      dead[count] = all[n - 1]
    end
  end
  if count > 0 then
    call('HDEL', key, unpack(dead))
  end
  return users
end

local begin, due, dues = 0, nil, 0
for k = 1, hashes do
  local last = users_of[k]
  if last > begin then
    local key, block = KEYS[before_keys + k], renewals[k]
    call('HSET', key, unpack(sends, begin + 1, last))
    if block then
      local mark = call('HGET', key, MARK)
      local marked_at = mark and unpack_struct('>I5', mark)
      if not marked_at or marked_at < block or marked_at > now + 300000 then
        call('PEXPIRE', key, time_to_live)
        due, dues = due or {}, dues + 1
        due[dues] = key
      end
    end
    begin = last
  end
end
-- From another one on each time, so that none is always behind the bound.
local looked = 0
for n = 1, dues do
  if looked < LOOKED_AT then
    local key = due[(now + n) % dues + 1]
    looked = looked + sweep(key)
    call('HSET', key, MARK, packed_now)
  end
end
return struct.pack('>I2' .. string.rep('I4I4I5I5', replied / 4), s / 3, unpack(replies, 1, replied))
