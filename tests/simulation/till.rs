//! What the fake nodes grant of budgets, by their own scripts: the checker's memory of each budget's hash.

use redis::Value;
use weir_core::basis::shard::filter_places;

use super::{commands::text, prelude::*, script::keys_and_args};

/// The bits that mark totals of campaigns that are gone, as in `lua/make_room.lua`.
const MARK_BITS: u32 = 1 << 18;

/// What is known of one budget's hash.
#[derive(Debug, Default)]
struct Account {
    /// The tokens that are granted in each field, without those that were taken back.
    tokens: BTreeMap<Vec<u8>, u64>,
    /// In how many turns some were granted.
    grants: usize,
    /// What each turn of a run came to, when it was made last.
    turns: BTreeMap<Run, BTreeMap<i64, Made>>,
    /// The tokens that failovers have forgotten.
    forgotten: u64,
    /// Whenever its count began, by the node's clock, which is right in runs with budgets.
    begun: BTreeSet<i64>,
    /// It had to make room for other totals of campaigns: it is spent from then on.
    is_gone: bool,
    /// The tokens that were granted since its node came back with an old snapshot, and nobody has marked its shard.
    since_return: Option<u64>,
    /// Those of all such times.
    on_return: u64,
}

/// A holder, and the run of its process.
type Run = [Vec<u8>; 2];

/// What a turn came to.
#[derive(Debug, Clone, Copy)]
struct Made {
    granted: i64,
    bucket: i64,
    /// The hash knows of it, or of a later one.
    is_known: bool,
}

/// What the nodes granted and took back, by the budget's key.
#[derive(Debug, Default)]
pub struct Till {
    accounts: BTreeMap<Vec<u8>, Account>,
    pub grants: usize,
    pub given_back: usize,
    pub rebuilt: usize,
    /// Totals of campaigns that had to go.
    pub gone: usize,
    /// Calls that nodes refused because of their clocks.
    pub wrong_clocks: usize,
    pub broken: Vec<String>,
}

fn number(bytes: &[u8]) -> i64 {
    text(bytes).parse().unwrap()
}

fn field<'i>(item: Option<&'i Item>, name: &[u8]) -> Option<&'i [u8]> {
    let Some(Item::Hash(hash)) = item else { return None };
    hash.get(name).map(Vec::as_slice)
}

/// The tokens in a budget's hash, by the field.
fn tokens(item: Option<&Item>) -> BTreeMap<Vec<u8>, u64> {
    let Some(Item::Hash(hash)) = item else { return BTreeMap::new() };
    let counts = |field: &[u8]| matches!(field[0], b'0'..=b'9' | b'p' | b't');
    let fields = hash.iter().filter(|(field, _)| counts(field));
    fields.map(|(field, value)| (field.clone(), u64::try_from(number(value)).unwrap())).collect()
}

/// The last turn of a holder in a budget's hash (`lua/share/members.lua`), where it is of this run: its number, and what it came to.
fn last_turn(item: Option<&Item>, [holder, run]: &Run) -> Option<(i64, Made)> {
    let member = text(field(item, &[b"h", holder.as_slice()].concat())?);
    let numbers: Vec<i64> = member.split(':').map(|word| word.parse().unwrap()).collect();
    let [of, turn, _, granted, _, bucket, ..] = numbers[..] else { panic!("a holder: {member}") };
    (of == number(run)).then_some((turn, Made { granted, bucket, is_known: true }))
}

/// Whether a total of a campaign is among the marks of those that are gone, and not there: the rule of `lua/take.lua`.
fn is_gone(key: &[u8], data: &Data) -> bool {
    let name = text(key);
    let stem = name.find("}:").map_or("", |at| &name[..at + 2]);
    let Some(Item::Text(marks)) = data.get(format!("{stem}gone").as_bytes()) else { return false };
    let is_set = |bit: u32| (marks[bit as usize / 8] >> (bit % 8)) & 1 == 1;
    !data.contains_key(key) && filter_places(name, MARK_BITS).into_iter().all(is_set)
}

impl Account {
    /// Its node has something else than what its scripts have left: after a failover, a loss, a rebuild.
    fn follow(&mut self, key: &[u8], data: &Data) {
        self.is_gone = is_gone(key, data);
        if self.is_gone {
            return;
        }
        let item = data.get(key);
        self.tokens = tokens(item);
        for (run, made) in &mut self.turns {
            let last = last_turn(item, run);
            made.iter_mut().for_each(|(turn, made)| made.is_known = last.is_some_and(|(last, _)| *turn <= last));
            // Made again since, behind a later run or after another loss, it may have come to something else.
            made.extend(last);
        }
    }

    /// Takes note of a turn. What it came to before, as far as that is known.
    fn turn(&mut self, run: Run, turn: i64, (granted, bucket): (i64, i64)) -> Option<(i64, i64)> {
        // The hash knows the last turn of a holder alone, and not one of a run before it.
        let is_of_last_run = !self.knows_later_run(&run[0], number(&run[1]));
        for (of, made) in self.turns.iter_mut().filter(|(of, _)| is_of_last_run && of[0] == run[0]) {
            if *of != run {
                made.values_mut().for_each(|made| made.is_known = false);
            }
        }
        let made = self.turns.entry(run).or_default();
        let before = made.get(&turn).filter(|made| made.is_known).map(|made| (made.granted, made.bucket));
        let is_first = !made.contains_key(&turn);
        self.grants += usize::from(is_first && granted > 0);
        if before.is_none() {
            made.insert(turn, Made { granted, bucket, is_known: is_of_last_run });
        }
        before
    }

    /// What a turn gives back; how often something came back.
    fn take_back(&mut self, given_back: &str, since: i64) -> usize {
        let mut returned = 0;
        for given in given_back.split(' ').filter(|given| !given.is_empty()) {
            let [of, tokens, count] = given.split(':').collect::<Vec<_>>()[..] else { panic!("given back: {given}") };
            let held = self.tokens.entry(of.as_bytes().to_vec()).or_default();
            let back = (*held).min(tokens.parse().unwrap());
            if count.parse::<i64>() == Ok(since) && back > 0 {
                *held -= back;
                returned += 1;
            }
        }
        returned
    }

    /// What is owed in a turn, and counted: no more than is left.
    fn owe(&mut self, owed: &str, counted_for: i64, (field, left): (&[u8], impl Fn(&Self) -> i64)) {
        for owed in owed.split(' ').filter(|owed| !owed.is_empty()) {
            let (tokens, ago) = owed.split_once(':').unwrap();
            if counted_for < ago.parse().unwrap() {
                let tokens = tokens.parse::<i64>().unwrap().min(left(self).max(0));
                *self.tokens.entry(field.to_vec()).or_default() += tokens.unsigned_abs();
            }
        }
    }

    /// Whether the hash knows a turn of a later run of the holder's process.
    fn knows_later_run(&self, holder: &[u8], run: i64) -> bool {
        let mut later = self.turns.iter().filter(|([of, other], _)| of == holder && number(other) > run);
        later.any(|(_, made)| made.values().any(|made| made.is_known))
    }

    /// The tokens that count at a time, of a window (`r`), or of this field.
    fn used(&self, kind: u8, field: &[u8], since: i64) -> i64 {
        let counts = |of: &[u8]| match kind {
            b'r' => of[0].is_ascii_digit() && number(of) > since,
            _ => *of == *field,
        };
        let tokens = self.tokens.iter().filter(|(of, _)| counts(of));
        i64::try_from(tokens.map(|(_, tokens)| tokens).sum::<u64>()).unwrap()
    }
}

impl Till {
    /// Takes note of a script that ran, changed this, and left this on its node.
    pub fn ran(&mut self, script: &Script, call: &[Vec<u8>], (reply, changes): (&Value, &[Change]), data: &Data) {
        let (keys, args) = keys_and_args(call);
        if let Value::ServerError(error) = reply {
            self.wrong_clocks += usize::from(error.code() == "WRONGCLOCK");
            return;
        }
        if script.is("make_room") {
            // A total that the register does not have as the caller read it stays: a failover may have forgotten it since.
            let goes = |key: &&Vec<u8>| changes.iter().any(|change| change.field == **key) && !data.contains_key(*key);
            return keys[3..].iter().filter(goes).for_each(|key| self.goes(key));
        }
        if script.is("restore_budget") {
            if matches!(reply, Value::BulkString(found) if *found == args[1]) {
                self.restored(&keys[1], data);
            }
            return;
        }
        let (Value::Array(values), Some(key)) = (reply, keys.last()) else { return };
        let ints = values.iter().map(|value| if let Value::Int(int) = value { *int } else { 0 });
        let reply: Vec<i64> = ints.collect();
        if script.is("take") && !reply.is_empty() {
            self.took(key, args, &reply, data.contains_key(key));
        }
    }

    /// A call is answered that there is too little only where so much is granted, and a turn that is repeated is granted nothing more. One
    /// that finds no budget, and leaves none, has only looked.
    fn took(&mut self, key: &[u8], args: &[Vec<u8>], reply: &[i64], is_there: bool) {
        let [granted, counted, _, bucket, free_in, now, since] = *reply else { panic!("a reply of take: {reply:?}") };
        let name = || String::from_utf8_lossy(key).into_owned();
        let arg = |at: usize| number(&args[at - 1]);
        let (run, turn, from, limit, need, least) = (arg(2), arg(3), arg(7), arg(9), arg(10), arg(13));
        let kind = args[5][0];
        // Where a token is counted that is spent by then.
        let field_at = |at: i64| match kind {
            b'r' => at.to_string().into_bytes(),
            b'p' => [b"p", args[6].as_slice()].concat(),
            _ => b"t".to_vec(),
        };
        let account = self.accounts.entry(key.to_vec()).or_default();
        if account.is_gone {
            if granted > 0 {
                self.broken.push(format!("budget: {} had to make room, and {granted} of it were granted", name()));
            }
            return;
        }
        let (field, mut is_repeated) = (field_at(bucket), false);
        if turn > 0 && is_there {
            account.begun.insert(since);
            // Of a run before the last one nothing comes back.
            let is_of_last_run = !account.knows_later_run(&args[0], run);
            let before = account.turn([0, 1].map(|at| args[at].clone()), turn, (granted, bucket));
            if let Some(before) = before {
                if before != (granted, bucket) {
                    self.broken
                        .push(format!("budget: a turn of {} got {before:?}, then {granted} in {bucket}", name()));
                }
            } else {
                let width = (from / 60).max(1);
                let spent = field_at((now + width - 1) / width * width);
                let left = |account: &Account| limit - account.used(kind, &spent, now - from);
                if is_of_last_run {
                    self.given_back += account.take_back(text(&args[15]), since);
                }
                account.owe(text(&args[16]), (now - since).max(0), (spent.as_slice(), left));
                let tokens = u64::try_from(granted).unwrap();
                if granted > 0 {
                    *account.tokens.entry(field.clone()).or_default() += tokens;
                    self.grants += 1;
                }
                account.since_return = account.since_return.map(|since| since + tokens);
            }
            is_repeated = before.is_some();
        }
        let used = account.used(kind, &field, now - from);
        if counted > used {
            self.broken.push(format!("budget: {} counts {counted}, and {used} were granted", name()));
        }
        let is_denied = granted < need || granted == 0 && free_in != 0;
        if !is_repeated && is_denied && used + least <= limit {
            self.broken.push(format!("budget: {} had {used} of {limit}, and {granted} of {need} were granted", name()));
        }
    }

    /// A total of a campaign had to make room.
    fn goes(&mut self, key: &[u8]) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        self.gone += usize::from(!account.is_gone);
        account.is_gone = true;
    }

    /// The keys of all budgets that anything is known of.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.accounts.keys()
    }

    /// A replica that has this takes over from a primary that had `had`.
    pub fn fails_over(&mut self, key: &[u8], had: Option<&Item>, kept: &Data) {
        // The keys of others.
        if !key.windows(3).any(|part| part == b"}:b") {
            return;
        }
        let account = self.accounts.entry(key.to_vec()).or_default();
        // Where it is forgotten that one is gone, so is all that it was spent for.
        let had = if account.is_gone { account.tokens.clone() } else { tokens(had) };
        account.follow(key, kept);
        if account.is_gone {
            return;
        }
        for (field, tokens) in had {
            account.forgotten += tokens.saturating_sub(account.tokens.get(&field).copied().unwrap_or(0));
        }
    }

    pub fn wiped(&mut self, key: &[u8]) {
        self.accounts.entry(key.to_vec()).or_default().follow(key, &Data::new());
    }

    /// A node comes back with this, which it had before.
    pub fn comes_back(&mut self, key: &[u8], kept: &Data) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        account.follow(key, kept);
        account.since_return.get_or_insert(0);
    }

    /// A rebuild has marked all shards: nothing is granted until it has counted again.
    pub fn marked(&mut self) {
        for account in self.accounts.values_mut() {
            account.on_return += account.since_return.take().unwrap_or(0);
        }
    }

    /// A rebuild has counted a budget from what was approved, which may be more than was granted: in shadow mode, and while the budget
    /// was unavailable.
    fn restored(&mut self, key: &[u8], data: &Data) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        account.follow(key, data);
        account.begun.extend(field(data.get(key), b"s").map(number));
        self.rebuilt += 1;
    }

    /// Whether a count of a budget began when something was recorded and not visible yet: that is not in it.
    pub fn is_not_counted(&self, key: &str, recorded: i64, visible: i64) -> bool {
        let begun = self.accounts.get(key.as_bytes()).map(|account| &account.begun);
        begun.is_some_and(|begun| begun.iter().any(|since| recorded < *since && *since <= visible))
    }

    /// In how many turns tokens of a budget were granted.
    pub fn grants_of(&self, key: &str) -> usize {
        self.accounts.get(key.as_bytes()).map_or(0, |account| account.grants)
    }

    /// How many tokens of a budget failovers have forgotten.
    pub fn forgotten(&self, key: &str) -> u64 {
        self.accounts.get(key.as_bytes()).map_or(0, |account| account.forgotten)
    }

    /// How many tokens of a budget a node has granted by an old snapshot, until all shards were marked.
    pub fn granted_on_return(&self, key: &str) -> u64 {
        let account = self.accounts.get(key.as_bytes());
        account.map_or(0, |account| account.on_return + account.since_return.unwrap_or(0))
    }
}
