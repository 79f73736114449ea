-- ledger/leases: what take, give_back and restore_budget need: times, leases and turns. weir puts it before each of them (script.rs of the Redis edge).

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

-- So many turns of a holder are known, and so long after the last one, in ms.
local TURNS, TURNS_KEPT_MS = 4, 3600000

-- The turns of a run, `<number>:<tokens>:<bucket>` each; '' where they are of another one, or are known no longer.
local function known_turns(text, run, now)
  local last_at, of_run, turns = text:match('^(%d+) (%d+) (.+)$')
  return of_run == run and last_at + TURNS_KEPT_MS > now and turns or ''
end

-- What a turn came to, { tokens, bucket }; nil: it is new. One that as many came after as are known is forgotten, and comes to nothing.
local function turn_done(text, run, number, now)
  local known, lowest = 0, math.huge
  for of, tokens, bucket in known_turns(text, run, now):gmatch('(%d+):(%d+):(-?%d+)') do
    if of == number then
      return { tonumber(tokens), tonumber(bucket) }
    end
    known, lowest = known + 1, math.min(lowest, tonumber(of))
  end
  if known == TURNS and tonumber(number) < lowest then
    return { 0, 0 }
  end
end

-- A holder's turns with a new one.
local function turns_text(text, run, number, tokens, bucket, now)
  local turns = {}
  for turn in known_turns(text, run, now):gmatch('%S+') do
    turns[#turns + 1] = turn
  end
  if #turns == TURNS then
    table.remove(turns, 1)
  end
  turns[#turns + 1] = number .. ':' .. whole(tokens) .. ':' .. whole(bucket)
  return whole(now) .. ' ' .. run .. ' ' .. table.concat(turns, ' ')
end
