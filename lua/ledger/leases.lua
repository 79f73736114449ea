-- ledger/leases: what take, give_back and restore_budget need: times, leases and turns. weir puts it before each of them
-- (script.rs of the Redis edge).

-- A whole number as it is written: up to 10^15, and never with an exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- The server's clock in ms since 1970.
local function server_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A holder's leases that have not ended, each { end, tokens }, ascending; and their tokens in all.
local function leases_at(text, now)
  local leases, tokens = {}, 0
  for ends, held in text:gmatch('(%d+):(%d+)') do
    if tonumber(ends) > now then
      leases[#leases + 1] = { tonumber(ends), tonumber(held) }
      tokens = tokens + held
    end
  end
  return leases, tokens
end

-- Adds a lease; one that ends at the same time becomes larger.
local function add_lease(leases, ends, tokens)
  for at, lease in ipairs(leases) do
    if lease[1] == ends then
      lease[2] = lease[2] + tokens
      return
    elseif lease[1] > ends then
      table.insert(leases, at, { ends, tokens })
      return
    end
  end
  leases[#leases + 1] = { ends, tokens }
end

local function leases_text(leases)
  local texts = {}
  for at, lease in ipairs(leases) do
    texts[at] = whole(lease[1]) .. ':' .. whole(lease[2])
  end
  return table.concat(texts, ' ')
end

-- How long a holder's last turn is known after it was made last, in ms.
local TURN_KEPT_MS = 3600000

-- What a turn of a holder came to, { tokens, bucket }, where its last one, a text or false, is of the same run, and not before it; nil: it is
-- new. Of one that another came after, the answer is not known any more: nothing.
local function turn_done(last, run, number)
  local of_run, of, tokens, bucket = (last or ''):match('^%d+ (%d+) (%d+):(%d+):(-?%d+)$')
  if of_run ~= run or tonumber(of) < tonumber(number) then
    return nil
  elseif of == number then
    return { tonumber(tokens), tonumber(bucket) }
  end
  return { 0, 0 }
end

local function turn_text(run, number, tokens, bucket, now)
  return whole(now) .. ' ' .. run .. ' ' .. number .. ':' .. whole(tokens) .. ':' .. whole(bucket)
end

-- A holder's last turn, which is made again, so that it is known for as long again. It is written, because WAIT speaks only of what its own
-- connection has written.
local function turn_again(last, now)
  return whole(now) .. last:match('^%d+(.*)$')
end
