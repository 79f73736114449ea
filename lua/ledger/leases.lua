-- ledger/leases: what take, give_back and restore_budget need. weir puts it before each of them (script.rs of the Redis edge).

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

