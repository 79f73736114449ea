-- guarded: carries out commands of a rebuild run, where every key that guards them holds what the run expects.
--
-- A run that was frozen may wake after another run has finished. So each of its writes names what must still be there: the
-- run's lock, or the shard's epoch, which is the run's mark while the run owns the shard.
--
-- KEYS  [1..]   the guards, strings, then the keys of the commands; all of one slot
-- ARGV  [1]     how many guards there are, decimal
--       [2..]   for each guard, in the order of KEYS: what it has to hold; empty: it must not exist
--       [..]    the commands, each: how many words it has, decimal, then its words
-- Reply: a list of strings, what each guard held, empty where it did not exist. The commands were carried out where that is
--        what ARGV says; otherwise none was.
--
-- Example: EVALSHA <sha> 2 weir:{12}:e weir:{12}:7 1 rebuilding:<epoch>:<run> 2 DEL weir:{12}:7
--            ->  ["rebuilding:<epoch>:<run>"]

local guards = tonumber(ARGV[1])
if not guards or guards < 1 or #KEYS < guards or #ARGV <= guards then
  return redis.error_reply('ERR guarded takes at least one guard and what it has to hold')
end
local found, ours = {}, true
for n = 1, guards do
  found[n] = redis.call('GET', KEYS[n]) or ''
  ours = ours and found[n] == ARGV[n + 1]
end
if ours then
  local at = guards + 2
  while at <= #ARGV do
    local words = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
  end
end
return found
