-- prelude: constants and functions that several scripts use. weir puts it in front of each script (script.rs of the Redis edge).
--
-- A history is a string of entries, ascending by time; FLAG ends one in which a cost is not 1. An entry is 20 bytes, big-endian:
-- time 5, id 6, origin 3, kind 2, campaign 3, cost 1.

-- The functions use no variable of the script: each would cost every call of admit as much as a decision.

local find, sub, unpack_struct = string.find, string.sub, struct.unpack
local ENTRY_BYTES, FLAG = 20, '\0'
-- Where the id begins in an entry, from 1.
local ID_AT = 6

-- The error reply to a caller that expects another epoch than the one found; nil where both are the same.
local function epoch_error(found, expected)
  if found ~= expected then
    return redis.error_reply('LOSTHISTORY the epoch is ' .. (found or 'gone'))
  end
end

-- The entries of a history without its flag, and the flag ('' where there is none); nil where it is not whole entries.
local function split_flag(history)
  local more = #history % 20
  if more == 0 then
    return history, ''
  elseif more == 1 and history:sub(-1) == '\0' then
    return history:sub(1, -2), '\0'
  end
end

-- Where the next entry begins that has these bytes at this place of it (from 1), of the entries from `from` on; nil where none has.
local function find_entry(entries, bytes, place, from)
  local at = entries:find(bytes, from + place - 1, true)
  while at and at % 20 ~= place % 20 do
    at = entries:find(bytes, at + 1, true)
  end
  return at and at - place + 1
end

