#!lua
-- admit: decides the sends of some users of one shard, and records those that go out.
--
-- The rule: a send is let through when, for every cap of its set, the costs of the user's entries in the cap's
-- window plus its own do not exceed the limit; then it is recorded once. An id that is recorded already is
-- answered as what it is (replay or duplicate) and not judged. Where a user has more entries than a history may hold, the
-- oldest are dropped. It is crates/core/src/decide.rs, next to the data.
--
-- KEYS  [1]     the shard's epoch; left out where ARGV[1] is empty
--       [2..]   hashes of users: field -> history, 20-byte entries, ascending by time; one more byte, 0,
--               ends a history in which a cost is not 1. The empty field has the time of the last sweep, 5 bytes
-- ARGV  [1]     the keyspace's epoch; empty: the caller has just checked it (a slot that is moving)
--       [2]     MessagePack, one after the other: the clock, ms since 2020-01-01 (so are all times below); the same as an
--               entry's 5 bytes; the retention in ms; 1: write a user again whose send is a replay, so that a WAIT on
--               this connection covers it; a key's time to live in ms, decimal text; the most entries of a user (at least 200: the
--               fast path does not count them); and ways to ask, each: the least of
--               its limits, where all its sends cost 1 and its caps are sliding ones on everything, else 0; cap set
--               (from 1); 1: record always; the place (from 1) of this way's last number; and where it is not 0, for each
--               cap: limit, length. Limits are in bytes of a history, 20 a send
--       [3]     cap sets, big-endian: kinds known u16; filters u16, each: bytes u16, bitmap (bit k of byte k/8:
--               kind k counts); sets u16, each: caps u8, each 25 bytes: shape u8 (1 calendar, 2 same campaign),
--               filter u16 (0: all kinds), limit u32, then sliding: length u48, 0, 0;
--               calendar: start u48, next u48, after u48
--       [4]     the users' fields, MessagePack, in the order of KEYS
--       [5]     their sends, MessagePack, each: the place of its way in [2] (from 1), negative where the next send is the
--               same user's; id, 6 bytes; origin 3, kind 2, campaign 3, cost 1, as 9 bytes
--       [6]     for each hash: users u8; its place in a retention u8, in 256ths: when its blocks begin
--       [7]     when it is too late to run, ms since 1970 by this server's clock, decimal text: by then the caller has given
--               the call up, and decides again by a later clock
-- Reply: one string: how many sends, u16; then for each that was not just let through now, 18 bytes: its place u16
--        (from 0), code u8, cap u8 (from 0), used u32, at u40, blocking u40.
--        code: 0 allowed, 1 replayed, 2 duplicate, 3 denied, and for all sends of a user, nothing written:
--        4 a filter met a kind above "kinds known", 5 the history is not whole entries;
--        6 not decided, ask again (the call had done enough work). +16: an entry is far ahead of the clock.
--        +32: blocking is there. +64: it was recorded, and the user's oldest entries were dropped, which were too many.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is not the keyspace's; LATE, the same, when it is too late.
--
-- Example: one user, one send, one cap of 2 in 24 h (strings of MessagePack in brackets, as what they say):
--   EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch>
--     [217000000000, "\50\134\26\126\0", 691200000, 0, "1468800000", 10000, 40, 1, 0, 12, 40, 86400000]
--     "\0\0" "\0\0" "\0\1" "\1" "\0" "\0\0" "\0\0\0\2" "\0\0\5\38\92\0" <12 zero bytes>     (one string)
--     ["42"] [7, <id>, <origin><kind><campaign>"\1"] "\1\7" 1795046384000
--   -> "\0\1"
--
-- Time to live, and the sweep: a user's first entry in a block of the key (a retention long) makes the key outlast two
-- retentions, and the call then looks at all users of the key: those without an entry in the last retention are deleted. The
-- key is marked, so that the rest of its block costs one HGET for each such user. A call looks at one key, and at more until
-- it has seen 96 users, which bounds it; a key that is left out waits for the next user of it. So in each block a key has as many
-- tries as it has users who come, in calls that each take three keys or more of those that are due, from another one on each
-- time. A key of more than 1,024 users (redis.users was far too low) is not swept.
--
-- Sent as one script: this file, admit/general.lua, admit/users.lua.
--
-- All that is read and decided comes before the first write, so an error leaves the shard as it was.
--
-- Most sends need no walk: where all costs are one and a cap counts everything, the entry `limit` back decides. The
-- rest of the script, for all else, is not even made before it is needed; it is given what it needs, since a variable
-- that a function shares costs a call as much as half a decision. Strings cost most of the rest, by their bytes, so each
-- is made once; and a call of a C function costs ten steps of Lua, so tables are filled by one.

local find, unpack_struct, unpack_all, unpack = string.find, struct.unpack, cmsgpack.unpack, unpack
local KEYS, ARGV, call = KEYS, ARGV, redis.call

-- The longest history that is looked at without counting the work, in bytes.
local MAX_SIMPLE_BYTES = 2560
-- The field of a key's last sweep, the most users of a key that is swept, and the users that a call looks at.
local MARK, MAX_SWEPT, LOOKED_AT = '', 1024, 96
-- A denial with the entry that is in the way.
local DENIED_BEHIND = 3 + 32

if #ARGV ~= 7 then
  return redis.error_reply('ERR admit takes 7 arguments, not ' .. #ARGV)
end
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[7]) then
  return redis.error_reply('LATE the caller has given this call up')
end
local before_keys = 0
if ARGV[1] ~= '' then
  before_keys = 1
  local epoch = call('GET', KEYS[1])
  if epoch ~= ARGV[1] then
    return redis.error_reply('LOSTHISTORY the epoch is ' .. (epoch or 'gone'))
  end
end
local head = { unpack_all(ARGV[2]) }
local now, packed_now, retention, time_to_live = head[1], head[2], head[3], head[5]
local too_old = now - retention
local fields, sends = { unpack_all(ARGV[4]) }, { unpack_all(ARGV[5]) }
local users_of = { string.byte(ARGV[6], 1, -1) }
local hashes = #users_of / 2
-- Four numbers for each send that the reply speaks of. Room for ten from the start: growing costs more.
local replies, replied = {
  nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
}, 0
