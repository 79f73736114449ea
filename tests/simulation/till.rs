//! What the fake nodes grant of budgets, and what the processes are told: the checker's memory; and around the ledger the
//! planted bugs that need a place there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::Value;
use weir_core::{
    budget::{Budget, BudgetId, SpanNow},
    class::ClassNames,
    ledger::{CountId, GiveBack, TakeAnswer, TakeRequest, TurnNumber},
    ports::{Ledger, StoreError},
};
use weir_redis::RedisLedger;

use super::{
    env::{Env, lock},
    sabotage::Sabotage,
    script::{Item, Script},
};

/// For how long a denial holds for a batch that waited for it: a lease's length.
const SETTLED: Duration = Duration::from_secs(5);

/// What is known of one budget's hash.
#[derive(Debug, Default)]
struct Account {
    /// The tokens that were granted in each field, without those that were taken back.
    tokens: BTreeMap<Vec<u8>, u64>,
    /// How often some were granted.
    grants: usize,
    /// What each turn of a run was granted, and in which bucket, when it was made first. Of the run of each holder that took last: a turn
    /// that an ended process's connection delivers behind those of the next one is not known any more, and grants anew.
    turns: BTreeMap<Vec<u8>, (Vec<u8>, BTreeMap<i64, (i64, i64)>)>,
    /// The turns that gave tokens back.
    returned: BTreeSet<(Run, i64)>,
    /// A failover or a wipe has changed the hash.
    unsure: bool,
    /// The tokens that failovers have forgotten.
    forgotten: u64,
    /// Whenever its count began, by the node's clock, which is right in runs with budgets.
    begun: BTreeSet<i64>,
}

/// A holder, and the run of its process.
type Run = [Vec<u8>; 2];

/// What the nodes granted and took back, by the budget's key.
#[derive(Debug, Default)]
pub struct Till {
    accounts: BTreeMap<Vec<u8>, Account>,
    pub grants: usize,
    pub given_back: usize,
    pub rebuilt: usize,
    /// Calls that nodes refused because of their clocks.
    pub wrong_clocks: usize,
    pub broken: Vec<String>,
}

fn number(text: &[u8]) -> i64 {
    str::from_utf8(text).unwrap().parse().unwrap()
}

/// Whether this is the key of a budget.
fn is_budget(key: &[u8]) -> bool {
    key.windows(3).any(|part| part == b"}:b")
}

/// The tokens in a budget's hash, by the field.
fn tokens(item: Option<&Item>) -> BTreeMap<&[u8], u64> {
    let Some(Item::Hash(hash)) = item else { return BTreeMap::new() };
    let counts = |field: &[u8]| matches!(field[0], b'0'..=b'9' | b'p' | b't');
    let fields = hash.iter().filter(|(field, _)| counts(field));
    fields.map(|(field, value)| (field.as_slice(), u64::try_from(number(value)).unwrap())).collect()
}

impl Till {
    /// Takes note of a script that ran.
    pub fn ran(&mut self, script: &Script, keys: &[Vec<u8>], args: &[Vec<u8>], reply: &Value) {
        let key = keys.last().unwrap();
        if let Value::ServerError(error) = reply {
            self.wrong_clocks += usize::from(error.code() == "WRONGCLOCK");
        }
        let Value::Array(values) = reply else { return };
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
        let arg = |at: usize| number(&args[at - 1]);
        let (from, limit, need, least) = (arg(4), arg(6), arg(7), arg(10));
        let kind = args[2][0];
        let field = match kind {
            b'r' => bucket.to_string().into_bytes(),
            b'p' => [b"p", args[3].as_slice()].concat(),
            _ => b"t".to_vec(),
        };
        let account = self.accounts.entry(key.to_vec()).or_default();
        account.begun.insert(since);
        let (mut before, mut overtaken) = (None, false);
        if arg(8) > 0 && arg(13) > 0 {
            let (run, made) = account.turns.entry(args[1].clone()).or_default();
            if *run != args[12] {
                (*run, *made) = (args[12].clone(), BTreeMap::new());
            }
            before = made.get(&arg(14)).copied();
            overtaken = made.last_key_value().is_some_and(|(last, _)| arg(14) < *last);
            made.entry(arg(14)).or_insert((granted, bucket));
        }
        if let Some(before) = before {
            // Of one that another came after, the answer is not known any more.
            if !overtaken && before != (granted, bucket) && !account.unsure {
                let key = String::from_utf8_lossy(key);
                self.broken.push(format!("budget: a turn of {key} got {before:?}, then {granted} in {bucket}"));
            }
        } else if granted > 0 {
            *account.tokens.entry(field.clone()).or_default() += u64::try_from(granted).unwrap();
            account.grants += 1;
            self.grants += 1;
        }
        let counts = |of: &[u8]| match kind {
            b'r' => of[0].is_ascii_digit() && number(of) + from > now,
            _ => *of == *field,
        };
        let used: u64 = account.tokens.iter().filter(|(of, _)| counts(of)).map(|(_, tokens)| tokens).sum();
        let used = i64::try_from(used).unwrap();
        if counted > used && !account.unsure {
            let key = String::from_utf8_lossy(key);
            self.broken.push(format!("budget: {key} counts {counted}, and {used} were granted"));
        }
        if before.is_some() || overtaken {
            return;
        }
        let is_denied = granted < need || granted == 0 && free_in != 0;
        if is_denied && !account.unsure && used + least <= limit {
            let key = String::from_utf8_lossy(key);
            self.broken.push(format!("budget: {key} had {used} of {limit}, and {granted} of {need} were granted"));
        }
    }

    /// A replica with `kept` takes over from a primary with `had`.
    pub fn fails_over(&mut self, key: &[u8], had: Option<&Item>, kept: Option<&Item>) {
        if !is_budget(key) || had == kept {
            return;
        }
        let account = self.accounts.entry(key.to_vec()).or_default();
        account.unsure = true;
        let kept = tokens(kept);
        for (field, tokens) in tokens(had) {
            account.forgotten += tokens.saturating_sub(kept.get(field).copied().unwrap_or(0));
        }
    }

    /// A node loses its keys.
    pub fn wiped<'k>(&mut self, keys: impl Iterator<Item = &'k Vec<u8>>) {
        keys.filter(|key| is_budget(key)).for_each(|key| self.accounts.entry(key.clone()).or_default().unsure = true);
    }

    /// A rebuild has counted a budget from what was approved, which may be more than was granted: in shadow mode, and while the budget
    /// was unavailable.
    pub fn restored(&mut self, key: &[u8], since: i64) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        account.unsure = true;
        account.begun.insert(since);
        self.rebuilt += 1;
    }

    /// Whether a count of a budget began when something was recorded and not visible yet: that is not in it.
    pub fn is_not_counted(&self, key: &str, recorded: i64, visible: i64) -> bool {
        let begun = self.accounts.get(key.as_bytes()).map(|account| &account.begun);
        begun.is_some_and(|begun| begun.iter().any(|since| recorded < *since && *since <= visible))
    }

    /// How often tokens of a budget were granted.
    pub fn grants_of(&self, key: &str) -> usize {
        self.accounts.get(key.as_bytes()).map_or(0, |account| account.grants)
    }

    /// How many tokens of a budget failovers have forgotten.
    pub fn forgotten(&self, key: &str) -> u64 {
        self.accounts.get(key.as_bytes()).map_or(0, |account| account.forgotten)
    }
}

/// The answer of the ledger to a process that there is too little.
#[derive(Debug, Clone)]
pub struct Denial {
    pub process: u64,
    pub budget: BudgetId,
    pub at: Duration,
    /// How long it holds; `None`: until the end.
    pub holds: Option<Duration>,
}

/// What the processes were told.
#[derive(Debug, Default)]
pub struct Told {
    pub denials: Vec<Denial>,
    /// In how many turns tokens of each budget were asked for, without those that were answered that there are none.
    pub asked: BTreeMap<BudgetId, usize>,
    /// How often each turn of a process was made.
    turns: BTreeMap<(u64, TurnNumber), usize>,
    /// Answers with tokens.
    pub granted: usize,
    /// Calls without an answer.
    pub refused: usize,
    /// Of a planted bug: where the last tokens of each process are from, and what it gives back too much.
    last: BTreeMap<(u64, BudgetId), (SpanNow, i64, CountId)>,
    unclear: BTreeMap<(u64, BudgetId), u64>,
}

/// What the processes were told, and the policy's budgets.
#[derive(Clone)]
pub struct Tells {
    pub told: Arc<Mutex<Told>>,
    budgets: Arc<[Budget]>,
}

impl Tells {
    pub fn new(budgets: impl Iterator<Item = Budget>) -> Self {
        Self { told: Arc::default(), budgets: budgets.collect() }
    }

    /// The planted bug that gives the tokens of a send back although it may have been recorded.
    pub fn give_back(&self, process: u64, class: &ClassNames<'_>, cost: u8) {
        let mut told = lock(&self.told);
        for id in self.budgets.iter().filter_map(|budget| budget.id_for(class)) {
            *told.unclear.entry((process, id)).or_default() += u64::from(cost);
        }
    }
}

/// The ledger as a process asks it.
pub struct SimLedger {
    pub env: Env,
    pub process: u64,
    pub ledger: RedisLedger,
    pub tells: Tells,
}

impl SimLedger {
    fn note(&self, request: &TakeRequest, answer: &TakeAnswer) {
        let mut told = lock(&self.tells.told);
        let (process, budget) = (self.process, request.budget.clone());
        if answer.granted > 0 {
            told.granted += 1;
            told.last.insert((process, budget.clone()), (request.span, answer.bucket, answer.count_id));
        } else if request.want > 0 && request.turn.is_none_or(|turn| told.turns[&(process, turn)] == 1) {
            *told.asked.entry(budget.clone()).or_default() -= 1;
        }
        if answer.granted < request.need || answer.granted == 0 && answer.free_in_ms != Some(0) {
            let free_in = answer.free_in_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap()));
            let holds = free_in.map(|free_in| free_in.max(SETTLED));
            told.denials.push(Denial { process, budget, at: self.env.passed(), holds });
        }
    }

    /// What the planted bug gives back.
    fn unclear(&self) -> Vec<GiveBack> {
        let mut told = lock(&self.tells.told);
        let Told { last, unclear, .. } = &mut *told;
        let mut back = Vec::new();
        unclear.retain(|of, tokens| {
            let Some(&(span, bucket, count_id)) = last.get(of).filter(|_| of.0 == self.process) else { return true };
            back.push(GiveBack { budget: of.1.clone(), span, bucket, count_id, tokens: *tokens, turn: None });
            false
        });
        back
    }
}

impl Ledger for SimLedger {
    async fn take(&mut self, requests: &[TakeRequest], answers: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
        let unclear = self.unclear();
        if !unclear.is_empty() {
            self.ledger.give_back(&unclear, &mut vec![None; unclear.len()]).await?;
        }
        let asked = requests.iter().map(|request| match (self.env.sabotage(), request.span) {
            // The ledger believes that the lease ended when a fourth of the window was not over yet.
            (Sabotage::LeaseOutlived, SpanNow::Rolling { window_ms }) => {
                TakeRequest { lease_ms: -window_ms / 4, ..request.clone() }
            }
            _ => request.clone(),
        });
        let asked: Vec<TakeRequest> = asked.collect();
        for request in requests.iter().filter(|request| request.want > 0) {
            let mut told = lock(&self.tells.told);
            let times = request.turn.map(|turn| {
                let times = told.turns.entry((self.process, turn)).or_default();
                *times += 1;
                *times
            });
            if times.is_none_or(|times| times == 1) {
                *told.asked.entry(request.budget.clone()).or_default() += 1;
            }
        }
        let mut outcome = self.ledger.take(&asked, answers).await;
        if outcome.is_err() && self.env.sabotage() == Sabotage::GrantAskedAgain {
            let anew: Vec<TakeRequest> =
                asked.into_iter().map(|request| TakeRequest { turn: None, ..request }).collect();
            outcome = self.ledger.take(&anew, answers).await;
        }
        for (request, answer) in requests.iter().zip(&*answers) {
            if let Some(answer) = answer {
                self.note(request, answer);
            }
        }
        lock(&self.tells.told).refused += usize::from(outcome.is_err());
        outcome
    }

    async fn give_back(&mut self, tokens: &[GiveBack], answers: &mut [Option<u64>]) -> Result<(), StoreError> {
        if self.env.sabotage() == Sabotage::GivenBackTwice {
            let unnumbered = tokens.iter().map(|given| GiveBack { turn: None, ..given.clone() });
            let unnumbered: Vec<GiveBack> = unnumbered.collect();
            self.ledger.give_back(&unnumbered, &mut vec![None; unnumbered.len()]).await?;
        }
        let outcome = self.ledger.give_back(tokens, answers).await;
        lock(&self.tells.told).refused += usize::from(outcome.is_err());
        outcome
    }
}
