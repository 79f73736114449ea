-- restore_budget: changes one budget for a rebuild run, where the budget is as the run has found it.
--
-- While a budget is closed (field x) nothing is granted, so the run that closed it may count and write it; a run that was frozen
-- and wakes finds another text there, and changes nothing. A budget of a shard that is being rebuilt need not be closed: its epoch
-- is the run's mark.
--
-- A change that is made again, because its reply was lost, does nothing more where it opens a budget: its field o has the text that it was
-- closed with. One that is open without it was lost, and a turn has begun it anew.
--
-- KEYS  [1]     the shard's epoch
--       [2]     the budget, a hash as in take.lua
--       [3]     of a total of a campaign: the register of these, as in take.lua
-- ARGV  [1]     what the epoch has to be
--       [2]     what the budget has to be: `absent`, `open`, or `x<why>`: closed with this text
--       [3]     what it becomes: `open`, or `x<why>`: closed with this text
--       [4]     how long its key lasts at least, in ms, decimal; 0: without end
--       [5]     the time in ms since 1970, by the caller's clock, which most others agree with
--       [6]     `keep`: what it holds stays; `replace`: it goes, its leases too, and tokens are counted since now, by the server's
--               clock or the caller's, whichever is ahead, and a later moment than before, so that what was granted before is not
--               given back
--       [7]     the limit, decimal. A total that holds this much makes room before others. So does a closed one, unless it keeps what it
--               holds: then it is closed only to be counted
--       [8..]   fields and tokens, in pairs: so many more are in that field
-- Reply: what the budget was, as in ARGV[2]. It is changed where that is what ARGV[2] says; otherwise nothing was.
-- Error: LOSTHISTORY, nothing read or written, when the epoch is another.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:b6:spring <epoch> "xrecount:<run>" open 0 1795132800110 replace 5000
--            t 4711
--            ->  "xrecount:<run>"

if #KEYS < 2 or #KEYS > 3 or #ARGV < 7 or #ARGV % 2 == 0 then
  return redis.error_reply('ERR restore_budget takes 2 or 3 keys, 7 arguments and pairs of arguments')
end
local wrong = epoch_error(redis.call('GET', KEYS[1]), ARGV[1])
if wrong then
  return wrong
end
local key, ends_in = KEYS[2], tonumber(ARGV[4])
local why = redis.call('HGET', key, 'x')
local found = why and 'x' .. why or redis.call('EXISTS', key) == 1 and 'open' or 'absent'
if found == 'open' and ARGV[3] == 'open' and redis.call('HGET', key, 'o') == ARGV[2] then
  -- Written again, because WAIT speaks only of what its own connection has written.
  redis.call('HSET', key, 'o', ARGV[2])
  return ARGV[2]
end
if found ~= ARGV[2] then
  return found
end
local keeps, fields, stays = ARGV[6] == 'keep', {}, {}
if not keeps or found == 'absent' then
  local before = tonumber(redis.call('HGET', key, 's') or 0)
  fields[1], fields[2], stays.s = 's', whole(math.max(server_clock(), tonumber(ARGV[5]), before + 1)), true
end
for at = 8, #ARGV, 2 do
  local before = keeps and tonumber(redis.call('HGET', key, ARGV[at]) or 0) or 0
  fields[#fields + 1], fields[#fields + 2] = ARGV[at], whole(before + tonumber(ARGV[at + 1]))
  stays[ARGV[at]] = true
end
if ARGV[3] ~= 'open' then
  fields[#fields + 1], fields[#fields + 2] = 'x', sub(ARGV[3], 2)
  stays.x = true
elseif why then
  fields[#fields + 1], fields[#fields + 2] = 'o', found
  stays.o = true
end
local gone = {}
local hash = redis.call('HGETALL', key)
for at = 1, #hash, 2 do
  local field = hash[at]
  if not stays[field] and (field == 'x' or not keeps) then
    gone[#gone + 1] = field
  end
end

-- First what a server without memory refuses.
if #fields > 0 then
  redis.call('HSET', key, unpack(fields))
end
if KEYS[3] then
  local tokens = tonumber((keeps or stays.t) and redis.call('HGET', key, 't') or 0)
  local has_none_left = ARGV[3] ~= 'open' and not keeps or tokens >= tonumber(ARGV[7])
  redis.call('HSET', KEYS[3], key, (has_none_left and '-' or '') .. whole(server_clock()))
end
for _, field in ipairs(gone) do
  redis.call('HDEL', key, field)
end
if ends_in == 0 then
  redis.call('PERSIST', key)
else
  keep_for(key, ends_in)
end
return found
