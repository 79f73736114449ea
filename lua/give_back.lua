-- give_back: takes tokens of one budget back that a lease holder has not spent, and never will.
--
-- The rule: a field never falls below 0 and is never created, so tokens that no longer count are not given back. Neither are those
-- that were granted before the budget was counted again: that count has what was approved, and none of them. A turn that is repeated
-- takes nothing more back, and one that comes behind a later one, or behind one of a later run, takes nothing. A call without a number must
-- not be repeated. It equals `Book::give_back` (crates/core/src/ledger/book.rs).
--
-- KEYS  [1]     the shard's epoch; absent while the shard's slot moves, where the caller has read it by itself
--       [#KEYS] the budget, a hash as in take.lua; a closed one takes tokens back, too
-- ARGV  [1]     what the epoch has to be
--       [2]     the holder
--       [3]     the field that the tokens were granted in: `<bucket>`, `p<start>` or `t`
--       [4]     tokens
--       [5]     the count that they were granted in: since when tokens were counted then (field s), in ms since 1970, 0: for ever
--       [6]     the run of the holder's process that the turn is of, decimal, above 0; 0: the call has no number
--       [7]     the number of the turn, decimal: higher than that of each turn of the run before
-- Reply: [1] how many were taken back, [2] the server's clock in ms since 1970.
-- Error: LOSTHISTORY, nothing written, when the epoch is another.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:b6:spring <epoch> weir-0 1795132860000 800 1795132800123 1795132700000 8
--            ->  800, 1795132801456

if #ARGV ~= 7 then
  return redis.error_reply('ERR give_back takes 7 arguments, not ' .. #ARGV)
end
local wrong = #KEYS == 2 and epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local key, own_field, turn_field, field = KEYS[#KEYS], 'h' .. ARGV[2], 'g' .. ARGV[2], ARGV[3]
local run, turn = tonumber(ARGV[6]), tonumber(ARGV[7])
local now = server_clock()
if (redis.call('HGET', key, 's') or '0') ~= ARGV[5] then
  return { 0, now }
end
local last = run > 0 and read_member(redis.call('HGET', key, turn_field), now) or nil
local order = turn_order(last, run, turn)
if order == 'run before' then
  return { 0, now }
elseif order then
  write_again(key, turn_field, last, now)
  return { order == 'same' and last.held or 0, now }
end
local granted = tonumber(redis.call('HGET', key, field) or 0)
local back = math.min(granted, tonumber(ARGV[4]))
if back <= 0 then
  return { 0, now }
end
local leases, tokens = leases_at(redis.call('HGET', key, own_field) or '', now)

if back == granted then
  redis.call('HDEL', key, field)
else
  redis.call('HSET', key, field, whole(granted - back))
end
if back >= tokens then
  -- It holds nothing any more: it is no holder until it takes again.
  redis.call('HDEL', key, own_field)
else
  -- From the leases that end first.
  local rest = back
  for _, lease in ipairs(leases) do
    local part = math.min(rest, lease[2])
    lease[2], rest = lease[2] - part, rest - part
  end
  redis.call('HSET', key, own_field, leases_text(leases))
end
if run > 0 then
  write_turn(key, turn_field, run, turn, back, 0, now)
end
return { back, now }
