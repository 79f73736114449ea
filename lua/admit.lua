-- admit: decides the sends of some users of one shard, and records the approved ones.
--
-- The rule: a send is approved when, for every cap of its set, the costs of the user's entries in the cap's window plus its own
-- do not exceed the limit; then it is recorded once. An id that is recorded already is answered as a replay or a duplicate, and
-- no cap is evaluated for it. Where a user has more entries than a history may hold, the oldest are dropped. The same rule in
-- Rust is crates/core/src/history/decide.rs; tests/redis/differential.rs compares the two.
--
-- KEYS  [1]     the shard's epoch; absent where ARGV[1] is empty
--       [2..]   hashes of users: field -> history. The empty field holds the time of the last sweep, 5 bytes
-- ARGV  [1]     the keyspace's epoch; empty: the caller has just checked it (a slot that is moving)
--       [2]     MessagePack, one value after the other: the terms of the call and its cap plans, as listed below
--       [3]     cap sets, big-endian: kinds known u16; filters u16, each: bytes u16, bitmap (bit k of byte k/8:
--               kind k counts); sets u16, each: caps u8, each 25 bytes: shape u8 (1 calendar, 2 same campaign),
--               filter u16 (0: all kinds), limit u32, then sliding: length u48, 0, 0;
--               calendar: start u48, next u48, after u48
--       [4]     the users' fields, MessagePack, in the order of KEYS
--       [5]     their sends, MessagePack, each: the place of its cap plan in [2] (from 1), negative where the next send is the
--               same user's; id, 6 bytes; origin 3, kind 2, campaign 3, cost 1, as 9 bytes
--       [6]     for each hash: users u8; its place in a retention u8, in 256ths: when its blocks begin
--       [7]     when it is too late to run, ms since 1970 by this server's clock, decimal text: by then the caller no longer
--               waits for the reply, and asks again by a later clock
-- Reply: one string: how many sends, u16; then for each that was not simply approved now, 18 bytes: its place u16
--        (from 0), code u8, cap u8 (from 0), used u32, at u40, blocking u40.
--        code: 0 allowed, 1 replayed, 2 duplicate, 3 denied, and for all sends of a user, nothing written:
--        4 a filter met a kind above "kinds known", 5 the history is not whole entries;
--        6 not decided, ask again (the call has done enough work). +16: an entry is far ahead of the clock.
--        +32: blocking is there. +64: it was recorded, and the user's oldest entries were dropped, which were too many.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is not the keyspace's; LATE, the same, when it is too late.
--
-- Example: one user, one send, one cap of 2 in 24 h (strings of MessagePack in brackets, as their values):
--   EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 <epoch>
--     [217000000000, "\50\134\26\126\0", 691200000, 0, "1468800000", 10000, 40, 1, 0, 13, 40, 86400000, 0]
--     "\0\0" "\0\0" "\0\1" "\1" "\0" "\0\0" "\0\0\0\2" "\0\0\5\38\92\0" <12 zero bytes>     (one string)
--     ["42"] [7, <id>, <origin><kind><campaign>"\1"] "\1\7" 1795046384000
--   -> "\0\1"
--
-- The parts of the script, in the order in which they are sent: prelude.lua, this file, admit/filters.lua, admit/slow_path.lua,
-- admit/fast_path.lua, admit/write.lua. All reading and deciding comes before the first write, so an error leaves the shard
-- as it was.
--
-- What decides its speed: strings cost most, by their bytes, so each is made once; a call of a C function costs ten steps of Lua,
-- so one call reads several numbers; tables are filled by one constructor; and each variable of the script that a function uses
-- costs every call as much as a decision, so functions use their arguments only.

local unpack_all, unpack = cmsgpack.unpack, unpack
local KEYS, call = KEYS, redis.call

-- The terms of the call begin with six values; times are ms since 2020-01-01:
--   now            the clock
--   packed_now     the same as an entry's 5 bytes
--   retention      the retention in ms
--   touch          1: write a user again whose send is a replay, so that a WAIT on this connection covers it
--   time_to_live   that of a key in ms, decimal text
--   max_entries    the most entries of a user; at least 200, since the fast path does not count them
-- The cap plans follow. Numbers of a plan, from its place in the terms on; limits are in bytes of a history, 20 per send:
--   LEAST     the least limit of its caps; 0: the slow path decides its sends
--   CAP_SET   its set in ARGV[3], from 1
--   ALWAYS    1: record the send, whatever the caps say
--   LAST      where the list of its caps ends in the terms
--   CAPS      its caps, where LEAST is not 0; fast_path.lua names their numbers
local LEAST, CAP_SET, ALWAYS, LAST, CAPS = 0, 1, 2, 3, 4

if #ARGV ~= 7 then
  return redis.error_reply('ERR admit takes 7 arguments, not ' .. #ARGV)
end
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[7]) then
  return redis.error_reply('LATE the caller no longer waits for this call')
end
local before_keys = 0
if ARGV[1] ~= '' then
  before_keys = 1
  local wrong = epoch_error(call('GET', KEYS[1]), ARGV[1])
  if wrong then
    return wrong
  end
end
local terms = { unpack_all(ARGV[2]) }
local now, packed_now, retention, _, time_to_live = unpack(terms, 1, 5)
local too_old = now - retention
local fields, sends = { unpack_all(ARGV[4]) }, { unpack_all(ARGV[5]) }
local users_of = { string.byte(ARGV[6], 1, -1) }
local hashes = #users_of / 2
-- Four numbers for each send that the reply mentions. Room for ten from the start: growing costs more.
local replies, replied = {
  nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
}, 0

