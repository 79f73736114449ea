-- The part of admit that goes through the users, decides what needs no walk, and writes.

local general

local s, user = 0, 0
-- For each hash: where in `sends` what is to be written begins and ends, and whether its time to live is renewed.
local begins, ends, renewals = {}, {}, {}
for k = 1, #KEYS - before_keys do
  local users = byte(shape, k)
  local histories = call('HMGET', KEYS[before_keys + k], unpack(fields, user + 1, user + users))
  local written, renew = s, false
  begins[k] = s
  for u = 1, users do
    local history, dirty, upto, simple = histories[u], false, s + 3, true
    user = user + 1
    if counts and counts[user] > 1 then
      upto = s + 3 * counts[user]
      for at = s + 1, upto, 3 do
        simple = simple and ways[sends[at]][1]
      end
    end
    repeat
      local way, id = ways[sends[s + 1]], sends[s + 2]
      local least, done = simple and way[1], false
      if not least then
        -- Not simple.
      elseif not history then
        if least > 0 then
          history, dirty, renew, done = packed_now .. id .. sends[s + 3], true, true, true
        end
      else
        local bytes = #history
        local newest = bytes % 20 == 0 and bytes > 0 and bytes <= MAX_SIMPLE_BYTES
          and unpack_struct('>I5', history, bytes - 19)
        if newest and newest <= now and not find(history, id, 1, true)
          and (bytes == 20 and newest or unpack_struct('>I5', history)) > too_old then
          local denied, freed
          local entries = bytes / 20
          done = true
          if entries >= least then
            for c = 2, way.last, 2 do
              local limit = way[c]
              if entries >= limit then
                local first, place = now - way[c + 1], (entries - limit) * 20
                local time = limit > 0 and unpack_struct('>I5', history, place + 1)
                if not time or (place > 0 and unpack_struct('>I5', history, place - 19) > first) then
                  -- More than the limit is used, so it is to be counted how much.
                  done = false
                  break
                end
                if time > first and not (freed and time - first <= freed) then
                  freed, denied = time - first, pack('>I2BBI4I5I5', s / 3, DENIED_BEHIND, c / 2 - 1, limit, now, time)
                end
              end
            end
          end
          if done and denied then
            replied = replied + 1
            replies[replied] = denied
          end
          if done and (not denied or way.record == 1) then
            history, dirty = history .. packed_now .. id .. sends[s + 3], true
            renew = renew or newest < block
          end
        end
      end
      if done then
        s = s + 3
      else
        general = general or make_general()
        local packed, renewed = general(history or '', s, upto)
        history, dirty, renew, s = packed or history, dirty or packed, renew or renewed, upto
      end
    until s == upto
    if dirty then
      -- In the place of sends that are decided.
      sends[written + 1], sends[written + 2] = fields[user], history
      written = written + 2
    end
  end
  ends[k], renewals[k] = written, renew
end
assert(s == 3 * sends_in_all and user == users_in_all, 'there are more sends or users than their counts say')

for k = 1, #KEYS - before_keys do
  if ends[k] > begins[k] then
    call('HSET', KEYS[before_keys + k], unpack(sends, begins[k] + 1, ends[k]))
    if renewals[k] then
      -- A day more than two blocks, for clocks of workers that differ.
      call('PEXPIRE', KEYS[before_keys + k], 2 * retention + DAY_MS)
    end
  end
end
return pack('>I2', sends_in_all) .. table.concat(replies, '', 1, replied)
