-- intern: gives numbers to names, in order from 1, and never gives one twice.
--
-- A name that has a number keeps it; a new one gets the next. The next number is kept in the table and skips every number that has a
-- name. On another server than the one that gave the last number (a failover, a restart) it skips some more: numbers that were
-- given and lost there may be in histories. Past the limit all new names share limit + 1, which is not stored.
--
-- A call with names writes, also where all have numbers, so that a WAIT behind it covers what others wrote. One without names only
-- compares and lists: it writes nothing.
--
-- KEYS  [1]     the table, a hash: name -> number; "epoch": the keyspace's epoch; "next": the next number; "run": the run id of
--               the server that gave the last one; "lost_at": if the table was lost and recreated, or its node may have returned with an
--               old snapshot, when that was found, in ms since 1970: earlier names may be missing
--       [2]     the same backwards, a hash: number -> name
-- ARGV  [1]     the keyspace's epoch
--       [2]     the highest number that may be given, decimal
--       [3]     how many numbers to skip on another server, decimal
--       [4]     the highest number that the caller has a name for, decimal; 0: none
--       [5]     that name
--       [6]     list names from the number behind this one on, decimal; -1: none
--       [7..]   names, each with a first byte that no table's own field begins with ("[" or "=")
-- Reply: the next number; a list of integers, one for each name, in their order; a list of names (nil: a number without one), 500 at
--        most; how many replicas the server has (0 where the user may not ask, or no names are given). A next number of 0: the
--        caller's number has another name or none. Then the table has lost writes: its epoch is changed, so that nobody uses it
--        before it is repaired.
-- Error: LOSTHISTORY, nothing written, when the table is gone or of another keyspace.
--
-- Example: EVALSHA <sha> 2 weir:{weir}:kinds weir:{weir}:kind-names <epoch> 65534 16 0 "" 0 ["push","promo"]
--            ->  2, [1], [["push","promo"]], 1

local MAX_LISTED = 500

if #KEYS ~= 2 or #ARGV < 6 then
  return redis.error_reply('ERR intern takes 2 keys and at least 6 arguments')
end
local fields = redis.call('HMGET', KEYS[1], 'epoch', 'next', 'run')
local epoch, next, run = fields[1], tonumber(fields[2] or 1), fields[3]
local wrong = epoch_error(epoch, ARGV[1])
if wrong then
  return wrong
end
local limit, skipped, listed = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
if ARGV[4] ~= '0' and redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then
  redis.call('HSET', KEYS[1], 'epoch', 'lost:' .. epoch)
  return { 0, {}, {}, 0 }
end

-- What the server says of itself; nil where it does not, or the user may not ask.
local function ask(section, pattern)
  local allowed, info = pcall(redis.call, 'INFO', section)
  return allowed and string.match(info, pattern) or nil
end

local names, numbers, given = {}, {}, nil
for n = 7, #ARGV do
  names[n - 6] = ARGV[n]
end
if #names > 0 then
  numbers = redis.call('HMGET', KEYS[1], unpack(names))
end
local new, backwards, size, fresh = { 'next', 0, 'run', '' }, {}, 0, {}
for n = 1, #names do
  local number = tonumber(numbers[n] or fresh[names[n]])
  if not number then
    if not given then
      given = ask('server', 'run_id:(%x+)') or ''
      if next > 1 and given ~= run then
        next = math.min(next + skipped, limit + 1)
      end
    end
    while next <= limit and redis.call('HGET', KEYS[2], next) do
      next = next + 1
    end
    number = next
    if next <= limit then
      fresh[names[n]], next = number, next + 1
      new[size + 5], new[size + 6] = names[n], number
      backwards[size + 1], backwards[size + 2] = number, names[n]
      size = size + 2
    end
  end
  numbers[n] = number
end
-- Backwards first: a number that stands there is given to no other name.
if size > 0 then
  redis.call('HSET', KEYS[2], unpack(backwards))
end
local replicas = 0
if #names > 0 then
  new[2], new[4] = next, given or run or ''
  redis.call('HSET', KEYS[1], unpack(new))
  replicas = tonumber(ask('replication', 'connected_slaves:(%d+)') or 0)
end

local list = {}
for number = listed + 1, listed >= 0 and math.min(next - 1, listed + MAX_LISTED) or -1 do
  list[#list + 1] = number
end
local found = #list > 0 and redis.call('HMGET', KEYS[2], unpack(list)) or {}
return { next, numbers, found, replicas }
