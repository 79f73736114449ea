-- The filters of caps: which kinds of sends count.

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

