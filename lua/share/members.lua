-- share/members: those who share a limit, and their turns.
--
-- A member is a field of a hash, a prefix and its name -> `<run>:<turn>:<end>:<held>:<wanted>`, of its last turn, and what else its limit needs
-- to know, behind another `:` each; all are whole numbers. The run is one of the member's process, and a later one is higher; so are later
-- turns of a run. From its end on, in ms since 1970, it is none. It equals `MemberRecords` (crates/core/src/limit/share/members.rs).

-- A member: run, turn, ends, held, wanted, and the other numbers in `more`. nil where there is none, or it has ended.
local function read_member(text, now)
  local numbers = {}
  for word in (text or ''):gmatch('%-?%d+') do
    numbers[#numbers + 1] = tonumber(word)
  end
  if #numbers >= 5 and numbers[3] > now then
    local member = { run = numbers[1], turn = numbers[2], ends = numbers[3], held = numbers[4], wanted = numbers[5] }
    member.more = { unpack(numbers, 6) }
    return member
  end
end

-- The members in a hash, by HGETALL: the caller's own one, the others with their names, and the fields of those that have ended.
local function read_members(hash, prefix, name, now)
  local found = { others = {}, gone = {} }
  for at = 1, #hash, 2 do
    local field = hash[at]
    if sub(field, 1, #prefix) == prefix then
      local member = read_member(hash[at + 1], now)
      if not member then
        found.gone[#found.gone + 1] = field
      elseif field == prefix .. name then
        found.own = member
      else
        member.name = sub(field, #prefix + 1)
        found.others[#found.others + 1] = member
      end
    end
  end
  return found
end

-- How a turn comes after the member's last one: nil: it is new; 'same': it is that one, repeated; 'behind': another came after it;
-- 'run before': it is of a process that has ended, or whose clock was set back.
local function turn_order(last, run, turn)
  if not last or run > last.run or run == last.run and turn > last.turn then
    return nil
  elseif run < last.run then
    return 'run before'
  end
  return turn == last.turn and 'same' or 'behind'
end

-- A turn that is repeated is written, too, because WAIT speaks only of what its own connection has written.
local function write_member(key, field, member)
  local numbers = { member.run, member.turn, member.ends, member.held, member.wanted, unpack(member.more) }
  for at, number in ipairs(numbers) do
    numbers[at] = whole(number)
  end
  redis.call('HSET', key, field, table.concat(numbers, ':'))
end

