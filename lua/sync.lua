-- sync: one turn of an instance at the log of activity: reads what others appended, appends its own users, and shares places.
--
-- The rule: members share the room that is left. Room is the caller's, without the new users of all entries in this reply, or the
-- least of another member's last turn, without the new users that were appended since: who knows of fewer users lets no more in than who
-- knows of more. Places that members hold are taken from it. The caller gets up to its fair part by what members want (share/fair.lua), and
-- never more than is free. So users who are active and places that are held are together never more than the maximum, whatever the order of
-- turns. Who was no member before gets no more places: after a loss of the members, all have to take a turn before it is known what they
-- hold. The places of a member that ended without leaving still count for a while, from when another's turn finds that it has ended: while
-- Redis did not answer it, it may have brought users in, whom it reports with its next turn. A repeated turn of a member appends nothing
-- again, and gets the places that it had; it reads from its cursor again. A turn that comes behind a later one has no effect. Where the
-- member has left, or ended, either is a new turn. It equals `Book` (crates/core/src/limit/pressure/activity_log/book.rs).
--
-- Nothing here has an epoch: a lost log is not a lost history. Instances know who is active, and fill it again.
--
-- KEYS  [1]     the log, a stream; an entry is up to 4,096 users of one instance and minute:
--                 i  the instance     m  minutes since 1970     n  how many of the users were not active before, as far as it knew
--                 u  the users: their hashes, 8 bytes each, big-endian
--       [2]     the members, a hash: `i:<instance>` -> a member (share/members.lua): the places that it holds, how many users asked it for
--               one; behind these the room of its last turn, without the new users of the entries read then, -1: it has set none; and n as
--               it was then. One that leaves is deleted.
--               `e:<instance>` -> the same of a member that ended without leaving, while its places still count
--               `n` -> how many new users all entries had together that were ever appended
-- ARGV  [1]     the instance
--       [2]     the run of its process that the turn is of, decimal, above 0
--       [3]     the number of the turn, decimal: higher than that of each turn of the run before
--       [4]     its cursor, from its last reply; '': from the beginning of the window, with the instance's own entries, which it
--               does not know any more
--       [5]     the window in ms: older entries are removed
--       [6]     for how long it is a member, in ms; 0: it leaves
--       [7]     the places that it holds
--       [8]     how many users have asked it for a place lately
--       [9]     the room: the maximum less the users whom it knows to be active; '': it wants no more places, and sets no bound for
--               others
--       [10..]  entries to append, three arguments each: m, n, u
-- Reply: empty where the turn comes behind a later one. Else [1] the cursor: the id of the last entry, behind `*` while own entries are
--        still to be read; '': the log is empty, [2] 1: there is more to read, and no places were added, [3] 1: the log no longer has the
--        entry at the cursor: it is read from the beginning of the window, [4] the places that the instance holds now, never fewer than
--        before, [5] its fair part of the room, 0 without one, [6] the members, this one included, [7] the server's clock in ms since 1970,
--        [8..] the entries read, about 1 MiB at most, three elements each: m, n, u.
--
-- Example: EVALSHA <sha> 2 weir:{weir}:activity weir:{weir}:activity-members weir-0 1795132700000 7 1795132800123-0 1800000 10000 40 90
--          1000 29918880 1 <8 bytes>  ->  1795132801130-0, 0, 0, 480, 480, 2, 1795132801130, 29918880, 3, <24 bytes>

-- Entries stay a little longer than the window: clocks differ, and users may be appended late.
local SLACK_MS = 120000
-- For how long the places of a member that ended without leaving still count.
local COUNTS_ON_MS = 10000
-- What a call reads at most, in bytes, where each entry counts as this many more; and how many entries it reads at once.
local MOST_BYTES, ENTRY_OVERHEAD, ENTRIES_AT_ONCE = 1048576, 100, 16

if #KEYS ~= 2 or #ARGV < 9 or #ARGV % 3 ~= 0 then
  return redis.error_reply('ERR sync takes 2 keys, and 9 arguments and three for each entry, not ' .. #ARGV)
end
local log, members_key, own, own_field = KEYS[1], KEYS[2], ARGV[1], 'i:' .. ARGV[1]
local run, turn = tonumber(ARGV[2]), tonumber(ARGV[3])
local reads_own, cursor = ARGV[4]:match('^(%*?)(.*)$')
local window_ms, member_for_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local held, wanted, room = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local now = server_clock()

local hash = redis.call('HGETALL', members_key)
local members, ended = read_members(hash, 'i:', own, now), read_members(hash, 'e:', own, now)
local order = turn_order(members.own, run, turn)
if order and order ~= 'same' then
  return {}
end

-- Read.
local begin = whole(now - window_ms - SLACK_MS)
local from, lost, more = begin, 0, 0
local with_own = reads_own ~= '' or cursor == ''
if cursor ~= '' then
  local appended_at = tonumber(cursor:match('^%d+'))
  if appended_at >= now - window_ms and #redis.call('XRANGE', log, cursor, cursor) == 0 then
    lost, cursor = 1, ''
  elseif appended_at >= now - window_ms - SLACK_MS then
    from = '(' .. cursor
  end
end
local reply, bytes, told = { '', 0, 0, 0, 0, 0, now }, 0, 0
repeat
  local entries = redis.call('XRANGE', log, from, '+', 'COUNT', ENTRIES_AT_ONCE)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local instance, new, users = fields[2], fields[6], fields[8]
    cursor, bytes = entry[1], bytes + #users + ENTRY_OVERHEAD
    if with_own or instance ~= own then
      local size = #reply
      reply[size + 1], reply[size + 2], reply[size + 3] = fields[4], new, users
      told = told + new
    end
  end
  from = '(' .. cursor
  more = #entries == ENTRIES_AT_ONCE and bytes >= MOST_BYTES and 1 or 0
until #entries < ENTRIES_AT_ONCE or more == 1

-- Append. Where nothing is left to be read, the next turn begins behind these.
local keep_ms = whole(window_ms + 2 * SLACK_MS)
local new_users = 0
if not order then
  for at = 10, #ARGV, 3 do
    new_users = new_users + ARGV[at + 1]
    local id = redis.call('XADD', log, 'MINID', begin, '*', 'i', own, 'm', ARGV[at], 'n', ARGV[at + 1], 'u', ARGV[at + 2])
    cursor = more == 0 and id or cursor
  end
  if #ARGV > 9 then
    redis.call('PEXPIRE', log, keep_ms)
  end
end
if with_own and more == 1 then
  cursor = '*' .. cursor
end

-- Share places.
local appended = (tonumber(redis.call('HGET', members_key, 'n')) or 0) + new_users
if new_users > 0 then
  redis.call('HSET', members_key, 'n', whole(appended))
  redis.call('PEXPIRE', members_key, keep_ms)
end
redis.call('HDEL', members_key, 'e:' .. own, unpack(ended.gone))
for _, field in ipairs(members.gone) do
  local member = field ~= own_field and read_member(redis.call('HGET', members_key, field), 0)
  if member then
    member.ends = now + COUNTS_ON_MS
    write_member(members_key, 'e' .. sub(field, 2), member)
    ended.others[#ended.others + 1] = member
  end
  redis.call('HDEL', members_key, field)
end
local others_held, least, part = 0, math.huge, 0
for _, member in ipairs(ended.others) do
  others_held = others_held + member.held
end
for _, member in ipairs(members.others) do
  local its_room, appended_then = unpack(member.more)
  others_held = others_held + member.held
  if its_room >= 0 then
    least = math.min(least, math.max(its_room - (appended - appended_then), 0))
  end
end
if member_for_ms == 0 then
  redis.call('HDEL', members_key, own_field)
else
  if room then
    room = math.max(room - told, 0)
    part = fair_share(room, own, wanted, members.others, now)
  end
  if order == 'same' then
    held = members.own.held
  elseif room and members.own and more == 0 then
    local left = math.min(room, least)
    local part_of_left = left < room and fair_share(left, own, wanted, members.others, now) or part
    held = math.max(held, grow(left, others_held, held, part_of_left))
  end
  local member = { run = run, turn = turn, ends = now + member_for_ms, held = held, wanted = wanted }
  member.more = { room or -1, appended }
  write_member(members_key, own_field, member)
  redis.call('PEXPIRE', members_key, keep_ms)
end

reply[1], reply[2], reply[3], reply[4], reply[5] = cursor, more, lost, held, part
reply[6] = #members.others + (member_for_ms == 0 and 0 or 1)
return reply
