-- The cap sets and their filters: which kinds of sends count.

-- The filters in ARGV[3], and where the cap sets begin. A filter is a table: kind -> whether it counts, nil where the caller does
-- not know the kind. It is filled as kinds are asked for, since a call meets few of them. `walked`: how many bytes the fast path has
-- compared with filters.
local function read_filters(packed)
  local KIND_OVERFLOW = 65535
  local known, count, place = struct.unpack('>I2I2', packed)

  local function counts_kind(bits, kind)
    if kind == KIND_OVERFLOW then
      return true
    elseif kind > known then
      return nil
    end
    local byte = string.byte(bits, math.floor(kind / 8) + 1)
    return byte ~= nil and bit.band(byte, 2 ^ (kind % 8)) ~= 0
  end

  local filters = { walked = 0 }
  for f = 1, count do
    local length, begin = struct.unpack('>I2', packed, place)
    local bits = string.sub(packed, begin, begin + length - 1)
    filters[f] = setmetatable({}, { __index = function(filter, kind)
      local counted = counts_kind(bits, kind)
      filter[kind] = counted
      return counted
    end })
    place = begin + length
  end
  return filters, place
end

-- The cap sets, which begin at `place`.
local function read_sets(packed, filters, place)
  local count, length
  local sets = {}
  count, place = struct.unpack('>I2', packed, place)
  for s = 1, count do
    local caps = {}
    length, place = struct.unpack('>B', packed, place)
    for c = 1, length do
      local shape, filter, limit, start, next, after
      shape, filter, limit, start, next, after, place = struct.unpack('>BI2I4I6I6I6', packed, place)
      local calendar, same = shape % 2 == 1, shape >= 2
      caps[c] = {
        limit = limit, length = not calendar and start, start = start, next = next, after = after,
        kinds = filters[filter], filter = filter, same = same, plain = filter == 0 and not same,
      }
    end
    sets[s] = caps
  end
  return sets
end
