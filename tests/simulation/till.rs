//! What the fake nodes grant of budgets, by their own scripts: the checker's memory of each budget's hash.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;
use weir_core::shard::filter_places;

use super::script::{Data, Item, Script};

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
    /// The turns that gave tokens back.
    returned: BTreeSet<(Run, i64)>,
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

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn number(bytes: &[u8]) -> i64 {
    text(bytes).parse().unwrap()
}

/// Whether this is the key of a budget.
fn is_budget(key: &[u8]) -> bool {
    key.windows(3).any(|part| part == b"}:b")
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

/// The last turn of a holder in a budget's hash (`lua/share/members.lua`), to take tokens (`n`) or to give some back (`g`), where it is of
/// this run: its number.
fn last_turn(item: Option<&Item>, kind: u8, [holder, run]: &Run) -> Option<i64> {
    let mut words = text(field(item, &[&[kind][..], holder].concat())?).split(':');
    let of_run = words.next() == Some(text(run));
    words.next().filter(|_| of_run)?.parse().ok()
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
            let last = last_turn(item, b'n', run);
            made.iter_mut().for_each(|(turn, made)| made.is_known = last.is_some_and(|last| *turn <= last));
        }
        self.returned.retain(|(run, turn)| last_turn(item, b'g', run).is_some_and(|last| *turn <= last));
    }

    /// Takes note of a turn that asks for tokens. What it came to before, as far as that is known: nothing where a later one came between.
    fn turn(&mut self, run: Run, turn: i64, (granted, bucket): (i64, i64)) -> (Option<(i64, i64)>, bool) {
        // The hash knows the last turn of a holder alone.
        for (of, made) in self.turns.iter_mut().filter(|(of, _)| of[0] == run[0]) {
            if *of != run {
                made.values_mut().for_each(|made| made.is_known = false);
            }
        }
        let made = self.turns.entry(run).or_default();
        let overtaken = made.range(turn + 1..).any(|(_, later)| later.is_known);
        let before = made.get(&turn).filter(|made| made.is_known).map(|made| (made.granted, made.bucket));
        let is_first = !made.contains_key(&turn);
        self.grants += usize::from(is_first && granted > 0);
        if before.is_none() {
            made.insert(turn, Made { granted, bucket, is_known: true });
        }
        (before, overtaken)
    }
}

impl Till {
    /// Takes note of a script that ran, and left this on its node.
    pub fn ran(&mut self, script: &Script, (keys, args): (&[Vec<u8>], &[Vec<u8>]), reply: &Value, data: &Data) {
        if let Value::ServerError(error) = reply {
            self.wrong_clocks += usize::from(error.code() == "WRONGCLOCK");
            return;
        }
        if script.is("make_room") {
            return keys[3..].iter().filter(|key| !data.contains_key(*key)).for_each(|key| self.goes(key));
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
        if script.is("take") {
            self.took(key, args, &reply);
        } else if script.is("give_back") {
            self.gave_back(key, args, u64::try_from(reply[0]).unwrap());
        }
    }

    /// A turn that is repeated is told again what it gave back, and gives no more back.
    fn gave_back(&mut self, key: &[u8], args: &[Vec<u8>], back: u64) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        let (run, turn) = ([1, 5].map(|at| args[at].clone()), number(&args[6]));
        let is_numbered = number(&args[5]) > 0;
        if back > 0 && (!is_numbered || account.returned.insert((run, turn))) {
            let tokens = account.tokens.entry(args[2].clone()).or_default();
            *tokens = tokens.saturating_sub(back);
            self.given_back += 1;
        }
    }

    /// A call is answered that there is too little only where so much is granted, and a turn that is repeated is granted nothing more.
    fn took(&mut self, key: &[u8], args: &[Vec<u8>], reply: &[i64]) {
        let [granted, counted, _, bucket, free_in, now, since] = *reply else { panic!("a reply of take: {reply:?}") };
        let name = || String::from_utf8_lossy(key).into_owned();
        let arg = |at: usize| number(&args[at - 1]);
        let (from, limit, need, least) = (arg(4), arg(6), arg(7), arg(10));
        let kind = args[2][0];
        let field = match kind {
            b'r' => bucket.to_string().into_bytes(),
            b'p' => [b"p", args[3].as_slice()].concat(),
            _ => b"t".to_vec(),
        };
        let account = self.accounts.entry(key.to_vec()).or_default();
        if account.is_gone {
            if granted > 0 {
                self.broken.push(format!("budget: {} had to make room, and {granted} of it were granted", name()));
            }
            return;
        }
        account.begun.insert(since);
        let (mut before, mut overtaken) = (None, false);
        if arg(8) > 0 && arg(13) > 0 {
            (before, overtaken) = account.turn([1, 12].map(|at| args[at].clone()), arg(14), (granted, bucket));
        } else {
            account.grants += usize::from(granted > 0);
        }
        if let Some(before) = before {
            // Of one that another came after, the answer is not known any more.
            if !overtaken && before != (granted, bucket) {
                self.broken.push(format!("budget: a turn of {} got {before:?}, then {granted} in {bucket}", name()));
            }
        } else if granted > 0 {
            let tokens = u64::try_from(granted).unwrap();
            *account.tokens.entry(field.clone()).or_default() += tokens;
            account.since_return = account.since_return.map(|since| since + tokens);
            self.grants += 1;
        }
        let counts = |of: &[u8]| match kind {
            b'r' => of[0].is_ascii_digit() && number(of) + from > now,
            _ => *of == *field,
        };
        let used: u64 = account.tokens.iter().filter(|(of, _)| counts(of)).map(|(_, tokens)| tokens).sum();
        let used = i64::try_from(used).unwrap();
        if counted > used {
            self.broken.push(format!("budget: {} counts {counted}, and {used} were granted", name()));
        }
        if before.is_some() || overtaken {
            return;
        }
        let is_denied = granted < need || granted == 0 && free_in != 0;
        if is_denied && used + least <= limit {
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
        if !is_budget(key) {
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

    /// A node loses its keys.
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
