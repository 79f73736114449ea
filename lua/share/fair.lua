-- share/fair: how members share a total: each by what it wants, max-min fair. It equals `fair_share` and `grow`
-- (crates/core/src/limit/share/fair.rs).

-- For how long the same members get what cannot be divided, in ms.
local ROTATE_MS = 10000

-- The part of the caller, who wants so much, beside other members, each with its name and what it wants: who wants no more than an even part
-- gets that; the others share the rest evenly, and take turns at the remainder. Where all get what they want, the surplus is shared evenly.
local function fair_share(total, own, want, others, now)
  local wanting = { { name = own, wanted = want } }
  for _, member in ipairs(others) do
    wanting[#wanting + 1] = member
  end
  table.sort(wanting, function(one, other)
    if one.wanted ~= other.wanted then
      return one.wanted < other.wanted
    end
    return one.name < other.name
  end)
  local left, rest, own_part, first = total, #wanting, 0, 1
  for at, one in ipairs(wanting) do
    if one.wanted > math.floor(left / rest) then
      break
    end
    left, rest, first = left - one.wanted, rest - 1, at + 1
    if one.name == own then
      own_part = one.wanted
    end
  end
  local turn = math.floor(now / ROTATE_MS)
  if rest == 0 then
    first, turn = 1, 0
  end
  local names = {}
  for at = first, #wanting do
    names[#names + 1] = wanting[at].name
  end
  table.sort(names)
  for rank, name in ipairs(names) do
    if name == own then
      local extra = (rank - 1 + turn) % #names < left % #names and 1 or 0
      return own_part + math.floor(left / #names) + extra
    end
  end
  return own_part
end

-- What a member may hold of a total, of which others hold so much: its part, as far as it holds that already, or they leave it.
local function grow(total, others, held, part)
  return math.min(part, math.max(held, total - others))
end

