//! The ledger of budgets in Redis: a call of `lua/take.lua` or `lua/give_back.lua` for each budget, one pipeline a node.
//!
//! A call whose reply is lost is not sent again from here, because it may have been carried out. Who asked repeats it, with its number.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redis::Value;
use weir_core::{
    budget::{BudgetId, SpanNow},
    clocks::WrongClock,
    ledger::{CountId, GiveBack, TakeAnswer, TakeRequest},
    limit::share::TurnNumber,
    ports::{Ledger, StoreError},
    time::Time,
};

use super::{
    cluster::Cluster,
    keyspace::Keyspace,
    node::Request,
    open::ask_epochs,
    options::RedisOptions,
    renewal::renewed,
    request_error::{RequestError, lost_history},
    script::Script,
    sequence::Repeat,
    stats::RedisStats,
    totals::{is_full, make_room, mark_places, most_per_shard},
};

/// What a Lua number counts exactly. Limits are below it, so no answer depends on how much a request is above it.
const MOST: u64 = 1 << 53;

/// The time by a clock that most others agree with: a ledger is not asked on a server whose clock differs by more than 5 minutes.
pub type LedgerClock = Arc<dyn Fn() -> Result<Time, WrongClock> + Send + Sync>;

/// The ledger as one lease holder asks it, over connections of its own.
pub struct RedisLedger {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    holder: String,
    clock: LedgerClock,
}

impl RedisLedger {
    /// The ledger of a keyspace that [`super::open`] has verified, for a holder: the name of this instance, which no other has.
    /// Connects when first asked.
    #[must_use]
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        holder: impl Into<String>,
        clock: LedgerClock,
    ) -> Self {
        Self {
            cluster: Cluster::new(Arc::clone(options), Arc::clone(stats)),
            keyspace: Arc::clone(&opened.keyspace),
            holder: holder.into(),
            clock,
        }
    }

    /// Asks for the requests at these places, one after the other where they are of one budget. `each` gets a place, its answer
    /// and the server's clock, as soon as they are there.
    ///
    /// # Errors
    /// Some places have no answer; the error says why.
    pub async fn take_each(
        &mut self,
        requests: &[TakeRequest],
        open: &[usize],
        mut each: impl FnMut(usize, TakeAnswer, Time) + Send,
    ) -> Result<(), StoreError> {
        let now = (self.clock)().map_err(|wrong| StoreError::Temporary(wrong.to_string()))?;
        let asked = open.iter().filter_map(|at| requests.get(*at));
        let most_totals = most_per_shard(self.cluster.options().max_totals, self.keyspace.meta().layout.shards);
        let keyspace = Arc::clone(&self.keyspace);
        let call = |request| Call::take(&self.holder, request, now).registered(&keyspace, most_totals);
        let calls = asked.map(call).collect();
        self.make(calls, |place, numbers| {
            let (answer, now) = take_answer(numbers)?;
            each(open[place], answer, now);
            Some(())
        })
        .await
    }

    /// Gives tokens back. `each` gets a place, how many tokens were taken back, and the server's clock, as soon as they are there.
    ///
    /// # Errors
    /// Some places have no answer; the error says why.
    pub async fn give_back_each(
        &mut self,
        tokens: &[GiveBack],
        mut each: impl FnMut(usize, u64, Time) + Send,
    ) -> Result<(), StoreError> {
        let calls = tokens.iter().map(|given| Call::give_back(&self.holder, given)).collect();
        self.make(calls, |place, numbers| {
            let [back, now] = numbers else { return None };
            each(place, u64::try_from(*back).ok()?, Time::from_millis(*now)?);
            Some(())
        })
        .await
    }

    /// Makes all calls. `read` gets the place of a call and the numbers of its reply, and says whether it is one.
    async fn make(
        &mut self,
        calls: Vec<Call<'_>>,
        mut read: impl FnMut(usize, &[i64]) -> Option<()>,
    ) -> Result<(), StoreError> {
        let (cluster, keyspace) = (&mut self.cluster, Arc::clone(&self.keyspace));
        let node = cluster.options().nodes[0].clone();
        let mut check = |place: usize, value: Value| {
            let numbers: Option<Vec<i64>> = redis::from_redis_value(value).ok();
            let done = numbers.and_then(|numbers| read(place, &numbers));
            done.ok_or_else(|| RequestError::torn(&node, "the numbers of a budget"))
        };
        let places = (0..calls.len()).collect();
        let mut calls = Calls { keyspace: &keyspace, calls, failed: BTreeMap::new() };
        calls.ask(cluster, (places, Keys::Both), &mut check).await;
        calls.ask_apart(cluster, &mut check).await;
        calls.ask_with_room(cluster, &mut check).await;
        if calls.failed.is_empty() {
            return Ok(());
        }
        if calls.failed.values().any(|error| matches!(error, RequestError::LostHistory { .. }))
            && let Some(made_anew) = renewed(cluster, &keyspace).await
        {
            self.keyspace = made_anew;
            return Err(StoreError::Temporary("a rebuild has recreated the keyspace: trying again with it".to_owned()));
        }
        Err(calls.why())
    }
}

impl Ledger for RedisLedger {
    async fn take(&mut self, requests: &[TakeRequest], answers: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
        let open: Vec<usize> = (0..requests.len()).filter(|at| answers.get(*at).is_some_and(Option::is_none)).collect();
        self.take_each(requests, &open, |at, answer, _| answers[at] = Some(answer)).await
    }

    async fn give_back(&mut self, tokens: &[GiveBack], answers: &mut [Option<u64>]) -> Result<(), StoreError> {
        self.give_back_each(tokens, |at, back, _| answers[at] = Some(back)).await
    }
}

/// The keys of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// The shard's epoch, and the budget; of a total of a campaign also the register and the marks.
    Both,
    /// The budget alone.
    Budget,
}

/// A call of one of the scripts.
struct Call<'c> {
    script: Script,
    budget: &'c BudgetId,
    /// All arguments after the epoch.
    args: Vec<String>,
    /// Whether it needs the register of totals.
    is_registered: bool,
}

impl<'c> Call<'c> {
    fn take(holder: &str, request: &'c TakeRequest, now: Time) -> Self {
        let TakeRequest { budget, span, limit, need, want, unit, least, lease_ms, turn } = request;
        let (kind, from, to) = match span {
            SpanNow::Rolling { window_ms } => ("r", *window_ms, 0),
            SpanNow::Period { start, end } => ("p", start.millis(), end.millis()),
            SpanNow::Total => ("t", 0, 0),
        };
        let mut args = vec![holder.to_owned(), kind.to_owned(), from.to_string(), to.to_string()];
        args.extend([*limit, *need, *want, *unit, *least].map(|number| number.min(MOST).to_string()));
        args.extend([*lease_ms, now.millis()].map(|number| number.to_string()));
        args.extend(turn_args(*turn));
        Self { script: Script::Take, budget, args, is_registered: budget.is_total_of_campaign(*span) }
    }

    /// With what bounds the totals of campaigns: so many a shard.
    fn registered(mut self, keyspace: &Keyspace, most_totals: u32) -> Self {
        if self.is_registered {
            let places = mark_places(&keyspace.budget_key(self.budget));
            self.args.extend(std::iter::once(most_totals).chain(places).map(|number| number.to_string()));
        } else {
            self.args.push("0".to_owned());
        }
        self
    }

    fn give_back(holder: &str, given: &'c GiveBack) -> Self {
        let GiveBack { budget, span, bucket, count_id: CountId(counted_since), tokens, turn } = given;
        let tokens = (*tokens).min(MOST).to_string();
        let mut args = vec![holder.to_owned(), field(*span, *bucket), tokens, counted_since.to_string()];
        args.extend(turn_args(*turn));
        Self { script: Script::GiveBack, budget, args, is_registered: false }
    }

    /// The slot, and what to ask there.
    fn request(&self, keyspace: &Keyspace, which: Keys) -> (u16, Request) {
        let shard = keyspace.budget_shard(self.budget);
        let budget_key = keyspace.budget_key(self.budget);
        let keys = match which {
            Keys::Both if self.is_registered => {
                let (totals_key, gone_key) = (keyspace.totals_key(shard), keyspace.gone_totals_key(shard));
                vec![keyspace.epoch_key(shard), totals_key, gone_key, budget_key]
            }
            Keys::Both => vec![keyspace.epoch_key(shard), budget_key],
            Keys::Budget => vec![budget_key],
        };
        let texts = std::iter::once(keyspace.epoch()).chain(self.args.iter().map(String::as_str));
        let args = texts.map(|text| text.as_bytes().to_vec()).collect();
        (keyspace.slot(shard), Request::Call { script: self.script, keys, args, latest: None })
    }
}

/// The run and the number of a turn, as the scripts have them.
fn turn_args(turn: Option<TurnNumber>) -> [String; 2] {
    let TurnNumber { run, number } = turn.unwrap_or(TurnNumber { run: 0, number: 0 });
    [run.to_string(), number.to_string()]
}

/// The field of a budget's hash that tokens of this bucket are in: `lua/take.lua`. Of a period the bucket is its start.
pub(super) fn field(span: SpanNow, bucket: i64) -> String {
    match span {
        SpanNow::Rolling { .. } => bucket.to_string(),
        SpanNow::Period { .. } => format!("p{bucket}"),
        SpanNow::Total => "t".to_owned(),
    }
}

/// Calls that are made together.
struct Calls<'c> {
    keyspace: &'c Keyspace,
    calls: Vec<Call<'c>>,
    /// Those that have no answer, by their place, and why.
    failed: BTreeMap<usize, RequestError>,
}

impl Calls<'_> {
    /// Makes the calls at these places, which were not carried out before.
    async fn ask(
        &mut self,
        cluster: &mut Cluster,
        (places, keys): (Vec<usize>, Keys),
        mut check: impl FnMut(usize, Value) -> Result<(), RequestError>,
    ) {
        let requests = places.iter().map(|place| self.calls[*place].request(self.keyspace, keys)).collect();
        let errors = cluster.ask_each(requests, Repeat::NotRun, |at, value| check(places[at], value)).await;
        for (place, error) in places.into_iter().zip(errors) {
            match error {
                None => drop(self.failed.remove(&place)),
                Some(error) => drop(self.failed.insert(place, error)),
            }
        }
    }

    /// Makes the calls again whose keys are on two nodes, because their slot is moving: the epoch is read by itself. Without this, a
    /// budget that has no key yet would wait until all of its slot has moved.
    async fn ask_apart(&mut self, cluster: &mut Cluster, check: impl FnMut(usize, Value) -> Result<(), RequestError>) {
        let apart = self.failed_by(|error| matches!(error, RequestError::Apart { .. }));
        if apart.is_empty() {
            return;
        }
        let keyspace = self.keyspace;
        let shards = self.shards(&apart);
        let epochs = ask_epochs(cluster, keyspace, shards.iter().copied()).await;
        let epochs: BTreeMap<u16, _> = shards.into_iter().zip(epochs).collect();
        let mut sound = Vec::new();
        for place in apart {
            match epochs.get(&keyspace.budget_shard(self.calls[place].budget)) {
                Some(Ok(Some(epoch))) if epoch == keyspace.epoch() => sound.push(place),
                Some(Ok(found)) => {
                    let message = format!("the epoch is {}", found.as_deref().unwrap_or("gone"));
                    self.failed.insert(place, RequestError::LostHistory { message });
                }
                Some(Err(error)) => drop(self.failed.insert(place, error.clone())),
                None => {}
            }
        }
        self.ask(cluster, (sound, Keys::Budget), check).await;
    }

    /// Makes room in the shards that have as many totals of campaigns as they may have, and makes the calls again that found none.
    async fn ask_with_room(
        &mut self,
        cluster: &mut Cluster,
        check: impl FnMut(usize, Value) -> Result<(), RequestError>,
    ) {
        let full = self.failed_by(is_full);
        if full.is_empty() {
            return;
        }
        for shard in self.shards(&full) {
            if let Err(error) = make_room(cluster, self.keyspace, shard).await {
                tracing::warn!("shard {shard} has no room for more totals of campaigns: {error}");
            }
        }
        self.ask(cluster, (full, Keys::Both), check).await;
    }

    /// The places of the calls that failed so.
    fn failed_by(&self, is: impl Fn(&RequestError) -> bool) -> Vec<usize> {
        self.failed.iter().filter(|(_, error)| is(error)).map(|(place, _)| *place).collect()
    }

    fn shards(&self, places: &[usize]) -> BTreeSet<u16> {
        places.iter().map(|place| self.keyspace.budget_shard(self.calls[*place].budget)).collect()
    }

    /// Why some calls have no answer: lost history where that is so of all of them.
    fn why(&self) -> StoreError {
        let (mut lost, mut first_lost, mut other) = (BTreeSet::new(), None, None);
        for (place, error) in &self.failed {
            let budget = self.calls[*place].budget;
            match error {
                RequestError::LostHistory { message } => {
                    lost.insert(self.keyspace.budget_shard(budget));
                    first_lost.get_or_insert_with(|| format!("budget {budget}: {message}"));
                }
                RequestError::Moved { .. }
                | RequestError::Ask { .. }
                | RequestError::Apart { .. }
                | RequestError::NoScript { .. }
                | RequestError::Unavailable { .. }
                | RequestError::Refused { .. } => {
                    other.get_or_insert_with(|| format!("budget {budget}: {error}"));
                }
            }
        }
        match (other, first_lost) {
            (None, Some(found)) => lost_history(lost.into_iter().collect(), &found),
            (other, _) => StoreError::Temporary(format!(
                "{} of {} budget calls have no answer: {}",
                self.failed.len(),
                self.calls.len(),
                other.unwrap_or_else(|| "no reply".to_owned())
            )),
        }
    }
}

/// The answer in the numbers of a reply, and the server's clock.
fn take_answer(numbers: &[i64]) -> Option<(TakeAnswer, Time)> {
    let [granted, used, leased, bucket, free_in_ms, now, since] = *numbers else { return None };
    let [granted, used, leased] = [granted, used, leased].map(|number| u64::try_from(number).ok());
    let answer = TakeAnswer {
        granted: granted?,
        used: used?,
        leased: leased?,
        bucket,
        free_in_ms: (free_in_ms >= 0).then_some(free_in_ms),
        counted_for_ms: now.saturating_sub(since).max(0),
        count_id: CountId(since),
    };
    Some((answer, Time::from_millis(now)?))
}
