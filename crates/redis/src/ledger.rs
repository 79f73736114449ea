//! The ledger of budgets in Redis: one call of `lua/take.lua` a turn.
//!
//! A call whose reply is lost is not sent again from here. Who takes the turn repeats it, with its number.

use std::sync::Arc;

use redis::{Value, cmd};
use weir_core::{
    basis::{clocks::WrongClock, time::Time},
    limit::{
        budget::{
            BudgetId, SpanNow,
            lease::BudgetUse,
            ledger::{BudgetTokens, CountId, GiveBack, LooksAtBudgets, OwedTokens, TakeAnswer, TakeTurn},
        },
        share::{TurnNumber, overtaken},
    },
    ports::{Share, StoreError},
};

use super::{
    address::NodeAddr,
    cluster::Cluster,
    keyspace::Keyspace,
    node::{Reply, Request},
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

/// The ledger as one lease holder takes its turns at it, over connections of its own.
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

    /// Takes a turn; gives also what the server's clock showed. `None`: a later turn was taken before.
    ///
    /// # Errors
    /// It may have been taken or not.
    pub async fn turn_at(
        &mut self,
        budget: &BudgetId,
        number: TurnNumber,
        turn: &TakeTurn,
    ) -> Result<Option<(TakeAnswer, Time)>, StoreError> {
        let call = self.call(budget, (number, turn))?;
        let reply = self.make(&call).await;
        let node = &self.cluster.options().nodes[0];
        match reply.and_then(|value| answer_in(value).ok_or_else(|| torn(node))) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.why(budget, error).await),
        }
    }

    /// Looks at budgets, and when each has so many tokens left. `each` gets a place and its answer, as soon as that is there.
    ///
    /// # Errors
    /// Some places have no answer; the error says why.
    pub async fn look_each(
        &mut self,
        budgets: &[BudgetUse],
        tokens: u64,
        mut each: impl FnMut(usize, TakeAnswer) + Send,
    ) -> Result<(), StoreError> {
        let looks: Vec<_> = budgets.iter().map(|used| (&used.id, TakeTurn::look(used, tokens))).collect();
        let calls = looks.iter().map(|(budget, look)| self.call(budget, (TurnNumber::default(), look)));
        let calls = calls.collect::<Result<Vec<Call<'_>>, StoreError>>()?;
        let requests = calls.iter().map(|call| call.request(&self.keyspace, Keys::All)).collect();
        let node = self.cluster.options().nodes[0].clone();
        let seen = |place: usize, value: Value| {
            let (answer, _) = answer_in(value).flatten().ok_or_else(|| torn(&node))?;
            each(place, answer);
            Ok(())
        };
        let errors = self.cluster.ask_each(requests, Repeat::NotRun, seen).await;
        let mut outcome = Ok(());
        for (place, error) in errors.into_iter().enumerate() {
            let Some(error) = error else { continue };
            let (budget, look) = &looks[place];
            // Its keys are on two nodes.
            let again = if matches!(error, RequestError::Apart { .. }) {
                self.turn_at(budget, TurnNumber::default(), look).await
            } else {
                Err(self.why(budget, error).await)
            };
            match again {
                Ok(answer) => answer.into_iter().for_each(|(answer, _)| each(place, answer)),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    fn call<'c>(&self, budget: &'c BudgetId, (number, turn): (TurnNumber, &TakeTurn)) -> Result<Call<'c>, StoreError> {
        let now = (self.clock)().map_err(|wrong| StoreError::Temporary(wrong.to_string()))?;
        let mut args = args(&self.holder, (number, turn), now);
        let is_registered = budget.is_total_of_campaign(turn.span);
        let most = || most_per_shard(self.cluster.options().max_totals, self.keyspace.meta().layout.shards);
        args.push(if is_registered { most() } else { 0 }.to_string());
        args.extend(budget.campaign.is_some().then(|| budget.name.to_string()));
        if is_registered {
            args.extend(mark_places(&self.keyspace.budget_key(budget)).map(|place| place.to_string()));
        }
        Ok(Call { budget, shard: self.keyspace.budget_shard(budget), args, is_registered })
    }

    /// Makes a call, which makes room first where its shard is full.
    async fn make(&mut self, call: &Call<'_>) -> Reply {
        let reply = self.ask(call, Keys::All).await;
        if matches!(reply, Err(RequestError::Apart { .. })) {
            // Its keys are on two nodes, because their slot is moving: the epoch is read by itself. Without this, a budget that has no key
            // yet would wait until all of its slot has moved.
            let epochs = ask_epochs(&mut self.cluster, &self.keyspace, [call.shard]).await;
            let found = epochs.into_iter().next().unwrap_or(Ok(None))?;
            if found.as_deref() != Some(self.keyspace.epoch()) {
                let message = format!("the epoch is {}", found.as_deref().unwrap_or("gone"));
                return Err(RequestError::LostHistory { message });
            }
            if self.has_unknown_campaigns(call).await? {
                return reply;
            }
            return self.ask(call, Keys::Budget).await;
        }
        if !reply.as_ref().is_err_and(is_full) {
            return reply;
        }
        if let Err(error) = make_room(&mut self.cluster, &self.keyspace, call.shard).await {
            tracing::warn!("shard {} has no room for more totals of campaigns: {error}", call.shard);
        }
        self.ask(call, Keys::All).await
    }

    /// Whether campaigns of the budget are closed that have no key in its shard.
    async fn has_unknown_campaigns(&mut self, call: &Call<'_>) -> Result<bool, RequestError> {
        if call.budget.campaign.is_none() {
            return Ok(false);
        }
        let mut command = cmd("HGET");
        command.arg(self.keyspace.unknown_key(call.shard)).arg(&*call.budget.name);
        let found = self.cluster.ask(self.keyspace.slot(call.shard), Request::Plain(command)).await?;
        Ok(found != Value::Nil)
    }

    async fn ask(&mut self, call: &Call<'_>, keys: Keys) -> Reply {
        let mut reply = Err(RequestError::torn(&self.cluster.options().nodes[0], "a request got none"));
        let request = call.request(&self.keyspace, keys);
        let found = |_: usize, value: Value| {
            reply = Ok(value);
            Ok(())
        };
        let error = self.cluster.ask_each(vec![request], Repeat::NotRun, found).await.pop().flatten();
        error.map_or(reply, Err)
    }

    /// Why a call has no answer. Where a rebuild has recreated the keyspace, calls go there from now on.
    async fn why(&mut self, budget: &BudgetId, error: RequestError) -> StoreError {
        let RequestError::LostHistory { message } = error else {
            return StoreError::Temporary(format!("budget {budget}: {error}"));
        };
        if let Some(made_anew) = renewed(&mut self.cluster, &self.keyspace).await {
            self.keyspace = made_anew;
            return StoreError::Temporary("a rebuild has recreated the keyspace: trying again with it".to_owned());
        }
        lost_history(vec![self.keyspace.budget_shard(budget)], &format!("budget {budget}: {message}"))
    }
}

impl Share<BudgetTokens> for RedisLedger {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        self.turn_at(budget, number, turn).await?.map(|(answer, _)| answer).ok_or_else(overtaken)
    }
}

impl LooksAtBudgets for RedisLedger {
    async fn look(
        &mut self,
        budgets: &[BudgetUse],
        tokens: u64,
        answers: &mut [Option<TakeAnswer>],
    ) -> Result<(), StoreError> {
        self.look_each(budgets, tokens, |place, answer| answers[place] = Some(answer)).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// The shard's epoch, and the budget; of a campaign's budget also the unknown campaigns, and of its total the register and the marks.
    All,
    Budget,
}

struct Call<'c> {
    budget: &'c BudgetId,
    shard: u16,
    /// All arguments after the epoch.
    args: Vec<String>,
    /// Whether it needs the register of totals.
    is_registered: bool,
}

impl Call<'_> {
    /// The slot, and what to ask there.
    fn request(&self, keyspace: &Keyspace, which: Keys) -> (u16, Request) {
        let shard = self.shard;
        let budget_key = keyspace.budget_key(self.budget);
        let keys = match which {
            Keys::All => {
                let mut keys = vec![keyspace.epoch_key(shard)];
                keys.extend(self.budget.campaign.is_some().then(|| keyspace.unknown_key(shard)));
                if self.is_registered {
                    keys.extend([keyspace.totals_key(shard), keyspace.gone_totals_key(shard)]);
                }
                keys.push(budget_key);
                keys
            }
            Keys::Budget => vec![budget_key],
        };
        let texts = std::iter::once(keyspace.epoch()).chain(self.args.iter().map(String::as_str));
        let args = texts.map(|text| text.as_bytes().to_vec()).collect();
        (keyspace.slot(shard), Request::Call { script: Script::Take, keys, args, latest: None })
    }
}

/// The arguments of a turn, from the holder to what is owed.
fn args(holder: &str, (number, turn): (TurnNumber, &TakeTurn), now: Time) -> Vec<String> {
    let TakeTurn { span, limit, need, want, unit, least, lease_ms, back, owed } = turn;
    let (kind, from, to) = match span {
        SpanNow::Rolling { window_ms } => ("r", *window_ms, 0),
        SpanNow::Period { start, end } => ("p", start.millis(), end.millis()),
        SpanNow::Total => ("t", 0, 0),
    };
    let tokens = |number: u64| number.min(MOST).to_string();
    let mut args = vec![holder.to_owned(), number.run.to_string(), number.number.to_string()];
    args.extend([kind.to_owned(), from.to_string(), to.to_string()]);
    args.extend([*limit, *need, *want, *unit, *least].map(tokens));
    args.extend([*lease_ms, now.millis()].map(|number| number.to_string()));
    let given_back =
        |GiveBack { span, bucket, count_id: CountId(counted_since), tokens: some, is_on_lease }: &GiveBack| {
            format!("{}:{}:{counted_since}:{}", field(*span, *bucket), tokens(*some), u8::from(*is_on_lease))
        };
    let back = back.iter().map(given_back);
    let owed = owed.iter().map(|OwedTokens { tokens: some, ago_ms }| format!("{}:{ago_ms}", tokens(*some)));
    args.extend([back.collect::<Vec<_>>().join(" "), owed.collect::<Vec<_>>().join(" ")]);
    args
}

/// The field of a budget's hash that tokens of this bucket are in: `lua/take.lua`. Of a period the bucket is its start.
pub(super) fn field(span: SpanNow, bucket: i64) -> String {
    match span {
        SpanNow::Rolling { .. } => bucket.to_string(),
        SpanNow::Period { .. } => format!("p{bucket}"),
        SpanNow::Total => "t".to_owned(),
    }
}

fn torn(node: &NodeAddr) -> RequestError {
    RequestError::torn(node, "the numbers of a budget")
}

/// The answer in a reply, and the server's clock, empty where a later turn was taken before; `None` where it is none.
fn answer_in(value: Value) -> Option<Option<(TakeAnswer, Time)>> {
    let numbers: Vec<i64> = redis::from_redis_value(value).ok()?;
    if numbers.is_empty() {
        return Some(None);
    }
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
    Some(Some((answer, Time::from_millis(now)?)))
}
