-- ledger/leases: a holder's leases of a budget, and its turns. weir puts it before take and give_back (script.rs of the Redis edge).

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

-- Writes a holder's turn, and what it came to.
local function write_turn(key, field, run, turn, tokens, bucket, now)
  local member = { run = run, turn = turn, ends = now + TURN_KEPT_MS, held = tokens, wanted = 0, more = { bucket } }
  write_member(key, field, member)
end

-- Writes a turn that is repeated, so that it is known for as long again.
local function write_again(key, field, last, now)
  last.ends = now + TURN_KEPT_MS
  write_member(key, field, last)
end
