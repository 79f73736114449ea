#!lua
-- admit: decides the sends of some users of one shard, and records those that go out.
--
-- The rule: a send is let through when, for every cap of its set, the costs of the user's entries in the cap's
-- window plus its own do not exceed the limit; then it is recorded once. An id that is recorded already is
-- answered as what it is (replay or duplicate) and not judged. It is src/domain/decide.rs, next to the data.
--
-- KEYS  [1]     the shard's epoch; left out where ARGV[1] is empty
--       [2..]   hashes of users: field (8 bytes) -> history, 20-byte entries, ascending by time; one more byte, 0,
--               ends a history in which a cost is not 1
-- ARGV  [1]     the keyspace's epoch; empty: the caller has just checked it (a slot that is moving)
--       [2]     the clock, ms since 2020-01-01, decimal; so are all times below
--       [3]     the retention in ms, decimal
--       [4]     "1": write a user again whose send is a replay, so that a WAIT on this connection covers it
--       [5]     cap sets, big-endian: kinds known u16; filters u16, each: bytes u16, bitmap (bit k of byte k/8:
--               kind k counts); sets u16, each: caps u8, each 25 bytes: shape u8 (1 calendar, 2 same campaign),
--               filter u16 (0: all kinds), limit u32, then sliding: length u48, 0, 0;
--               calendar: start u48, next u48, after u48
--       [6]     ways to ask, each: cap set u16 (from 0), record u8 (1: always), simple u8; 255: anything; else all
--               its sends cost 1 and its so many caps are sliding ones on everything: least limit u32, and for
--               each: limit u32, length u48
--       [7]     the users' fields, in the order of KEYS
--       [8]     their sends, each 16 bytes: way u8 (from 0), id 6, origin 3, kind 2, campaign 3, cost 1
--       [9]     users u8, for each hash; then, where any has more than one, sends u8, for each user
-- Reply: one string: how many sends, u16; then for each that was not just let through now, 18 bytes: its place u16
--        (from 0), code u8, cap u8 (from 0), used u32, at u40, blocking u40.
--        code: 0 allowed, 1 replayed, 2 duplicate, 3 denied, and for all sends of a user, nothing written:
--        4 the history names a kind above "kinds known", 5 the history is not whole entries;
--        6 not decided, ask again (the call had done enough work). +16: an entry is far ahead of the clock.
--        +32: blocking is there.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is not the keyspace's.
--
-- Example: one user, one send, one cap of 2 in 24 h:
--   EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch> 217000000000 691200000 0
--     "\0\0" "\0\0" "\0\1" "\1" "\0" "\0\0" "\0\0\0\2" "\0\0\5\38\92\0" <12 zero bytes>     (one string)
--     "\0\0" "\0" "\1" "\0\0\0\2" "\0\0\0\2" "\0\0\5\38\92\0"                                (one string)
--     <field> "\0"<id><origin><kind><campaign>"\1" "\1"
--   -> "\0\1"
--
-- Sent as one script: this file, admit/general.lua, admit/users.lua.
--
-- All that is read and decided comes before the first write, so an error leaves the shard as it was.
--
-- Most sends need no walk: where all costs are one and a cap counts everything, the entry `limit` back decides. The
-- rest of the script, for all else, is not even made before it is needed: making its functions costs a call as much
-- as three decisions. Strings cost most of the rest, so each is made once, and tables are filled by one C call.

local byte, find, rep, floor = string.byte, string.find, string.rep, math.floor
local pack, unpack_struct, unpack, call = struct.pack, struct.unpack, unpack, redis.call
local KEYS, ARGV = KEYS, ARGV

local MAX_AHEAD_MS, DAY_MS = 300000, 86400000
-- The longest history that is looked at without counting the work, in bytes.
local MAX_SIMPLE_BYTES = 2560
local ALLOWED, REPLAYED, DUPLICATE, DENIED, STALE, TORN, LATER = 0, 1, 2, 3, 4, 5, 6
-- A denial with the entry that is in the way.
local DENIED_BEHIND = DENIED + 32
-- Entries looked at in one call, after which the rest is put off: some 2 ms at the worst.
local MAX_WORK = 20000

if #ARGV ~= 9 then
  return redis.error_reply('ERR admit takes 9 arguments, not ' .. #ARGV)
end
local before_keys = 0
if ARGV[1] ~= '' then
  before_keys = 1
  local epoch = call('GET', KEYS[1])
  if epoch ~= ARGV[1] then
    return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
  end
end
local now, retention = tonumber(ARGV[2]), tonumber(ARGV[3])
local packed_now, block, too_old = pack('>I5', now), now - now % retention, now - retention

-- Ways to ask, from 0. A simple one has its least limit in place 1 and then limits and lengths up to `last`.
local ways = {}
do
  local packed, place, number = ARGV[6], 1, 0
  while place <= #packed do
    local high, low, record, caps = byte(packed, place, place + 3)
    if caps == 255 then
      ways[number] = { set = high * 256 + low + 1, record = record }
      place = place + 4
    else
      local way = {
        set = high * 256 + low + 1, record = record, last = 2 * caps + 1,
        unpack_struct('>I4' .. rep('I4I6', caps), packed, place + 4),
      }
      place = way[2 * caps + 2]
      ways[number] = way
    end
    number = number + 1
  end
end

local shape = ARGV[9]
local users_in_all, sends_in_all = #ARGV[7] / 8, #ARGV[8] / 16
local fields = { unpack_struct(rep('c8', users_in_all), ARGV[7]) }
-- Way, id and the entry's other bytes, for each send.
local sends = { unpack_struct(rep('Bc6c9', sends_in_all), ARGV[8]) }
local counts = sends_in_all ~= users_in_all and { byte(shape, #KEYS - before_keys + 1, -1) }
local replies, replied = {}, 0
