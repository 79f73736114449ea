//! The ledger of budgets in Redis: one call of `lua/take.lua` a turn.
//!
//! A call whose reply is lost is not sent again from here. Who takes the turn repeats it, with its number.

use std::{collections::VecDeque, sync::Arc};

use redis::Value;
use weir_core::{
    basis::{clocks::WrongClock, time::Time},
    limit::{
        budget::{
            BudgetId, SpanNow,
            lease::BudgetUse,
            ledger::{BudgetTokens, CountId, GiveBack, LooksAtBudgets, OwedTokens, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::StoreError,
};

use super::{
    keyspace::Keyspace,
    node::Request,
    open::{ask_epochs, renewed, startup},
    request_error::{RequestError, lost_history},
    script::Script,
    sequence::Repeat,
    share::{OnRedis, RedisShare},
    stats::RetryCause,
    totals::{is_full, make_room, mark_places, most_per_shard},
};

/// What a Lua number counts exactly. Limits are below it, so no answer depends on how much a request is above it.
const MOST: u64 = 1 << 53;

/// The time by a clock that most others agree with: a ledger is not asked on a server whose clock differs by more than 5 minutes.
pub type LedgerClock = Arc<dyn Fn() -> Result<Time, WrongClock> + Send + Sync>;

/// The ledger as one lease holder takes its turns at it: an instance, by its name.
pub type RedisLedger = RedisShare<BudgetTokens>;

impl OnRedis for BudgetTokens {
    const WHAT: &'static str = "the numbers of a budget";
    const SCRIPT: Script = Script::Take;
    const REPEAT: Repeat = Repeat::NotRun;
    type By = LedgerClock;

    /// The shard's epoch; of a campaign's budget the unknown campaigns, and of its total the register and the marks; and the budget.
    fn place(keyspace: &Keyspace, budget: &BudgetId, turn: &TakeTurn) -> (u16, Vec<String>) {
        let shard = keyspace.budget_shard(budget);
        let mut keys = vec![keyspace.epoch_key(shard)];
        keys.extend(budget.campaign.is_some().then(|| keyspace.unknown_key(shard)));
        if budget.is_total_of_campaign(turn.span) {
            keys.extend([keyspace.totals_key(shard), keyspace.gone_totals_key(shard)]);
        }
        keys.push(keyspace.budget_key(budget));
        (keyspace.slot(shard), keys)
    }

    fn args(ledger: &RedisLedger, budget: &BudgetId, turn: &TakeTurn) -> Result<Vec<Vec<u8>>, StoreError> {
        let now = (ledger.by)().map_err(|wrong| StoreError::Temporary(wrong.to_string()))?;
        let TakeTurn { span, limit, need, want, unit, least, lease_ms, held, back, owed } = turn;
        let (kind, from, to) = match span {
            SpanNow::Rolling { window_ms } => ("r", *window_ms, 0),
            SpanNow::Period { start, end } => ("p", start.millis(), end.millis()),
            SpanNow::Total => ("t", 0, 0),
        };
        let tokens = |number: u64| number.min(MOST).to_string();
        let mut args = vec![ledger.keyspace.epoch().to_owned(), now.millis().to_string()];
        args.extend([kind.to_owned(), from.to_string(), to.to_string()]);
        args.extend([*limit, *need, *want, *unit, *least].map(tokens));
        args.extend([lease_ms.to_string(), tokens(*held)]);
        let given_back = |GiveBack { span, bucket, count_id: CountId(counted_since), tokens: some }: &GiveBack| {
            format!("{}:{}:{counted_since}", field(*span, *bucket), tokens(*some))
        };
        let back = back.iter().map(given_back);
        let owed = owed.iter().map(|OwedTokens { tokens: some, ago_ms }| format!("{}:{ago_ms}", tokens(*some)));
        args.extend([back.collect::<Vec<_>>().join(" "), owed.collect::<Vec<_>>().join(" ")]);
        let is_registered = budget.is_total_of_campaign(*span);
        let most = || most_per_shard(ledger.cluster.options().max_totals, ledger.keyspace.meta().layout.shards);
        args.push(if is_registered { most() } else { 0 }.to_string());
        args.extend(budget.campaign.is_some().then(|| budget.name.to_string()));
        if is_registered {
            args.extend(mark_places(&ledger.keyspace.budget_key(budget)).map(|place| place.to_string()));
        }
        Ok(args.into_iter().map(String::into_bytes).collect())
    }

    fn reply(parts: VecDeque<Value>, _: usize) -> Option<TakeAnswer> {
        answer_in(parts).map(|(answer, _)| answer)
    }

    async fn mend(
        ledger: &mut RedisLedger,
        turn: (&BudgetId, TurnNumber, &TakeTurn),
        error: RequestError,
    ) -> Result<Value, StoreError> {
        let is_apart = error.cause == RetryCause::TryAgain;
        let mended = if is_apart {
            // Its keys are on two nodes, because their slot is moving: what else the script reads is read by itself. Without this, a budget
            // that has no key yet would wait until all of its slot has moved.
            ledger.check_apart(turn.0, error).await
        } else if is_full(&error) {
            let shard = ledger.keyspace.budget_shard(turn.0);
            make_room(&mut ledger.cluster, &ledger.keyspace, shard).await
        } else {
            Err(error)
        };
        let reply = match mended {
            Ok(()) => {
                let (slot, mut request) = ledger.request(turn)?;
                if let (true, Request::Call { keys, .. }) = (is_apart, &mut request) {
                    // The budget alone.
                    keys.drain(..keys.len() - 1);
                }
                ledger.cluster.ask_one(slot, request, Self::REPEAT).await
            }
            Err(error) => Err(error),
        };
        match reply {
            Ok(value) => Ok(value),
            Err(error) => Err(ledger.why(turn.0, error).await),
        }
    }
}

impl RedisLedger {
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
        self.take((budget, number, turn), |parts, _| answer_in(parts)).await
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
        let turns: Vec<TakeTurn> = budgets.iter().map(|used| TakeTurn::look(used, tokens)).collect();
        let looks = || budgets.iter().zip(&turns).map(|(used, look)| (&used.id, TurnNumber::default(), look));
        let requests = looks().map(|look| self.request(look)).collect::<Result<Vec<_>, StoreError>>()?;
        let torn = self.torn();
        let mut seen = |place: usize, value: Value| -> Result<(), RequestError> {
            let parts = if let Value::Array(parts) = value { parts.into() } else { VecDeque::new() };
            each(place, BudgetTokens::reply(parts, 0).ok_or_else(|| torn.clone())?);
            Ok(())
        };
        let errors = self.cluster.ask_each(requests, BudgetTokens::REPEAT, &mut seen).await;
        let mut outcome = Ok(());
        for ((place, look), error) in looks().enumerate().zip(errors) {
            let Some(error) = error else { continue };
            let mended = BudgetTokens::mend(self, look, error).await;
            if let Err(error) = mended.and_then(|value| seen(place, value).map_err(startup)) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Whether a budget may be asked for by its key alone: its shard has its history, and a new campaign of it is not closed. Else why
    /// not, or this error.
    async fn check_apart(&mut self, budget: &BudgetId, error: RequestError) -> Result<(), RequestError> {
        let shard = self.keyspace.budget_shard(budget);
        let epochs = ask_epochs(&mut self.cluster, &self.keyspace, [shard]).await;
        let found = epochs.into_iter().next().unwrap_or(Ok(None))?;
        if found.as_deref() != Some(self.keyspace.epoch()) {
            return Err(RequestError::lost(format!("the epoch is {}", found.as_deref().unwrap_or("gone"))));
        }
        if budget.campaign.is_none() {
            return Ok(());
        }
        let unknown = Request::plain("HGET", (self.keyspace.unknown_key(shard), &*budget.name));
        let found = self.cluster.ask(self.keyspace.slot(shard), unknown).await?;
        if found == Value::Nil { Ok(()) } else { Err(error) }
    }

    /// Why a call has no answer. Where a rebuild has recreated the keyspace, calls go there from now on.
    async fn why(&mut self, budget: &BudgetId, error: RequestError) -> StoreError {
        if error.cause != RetryCause::LostHistory {
            return StoreError::Temporary(format!("budget {budget}: {error}"));
        }
        if let Some(made_anew) = renewed(&mut self.cluster, &self.keyspace).await {
            self.keyspace = made_anew;
            return StoreError::Temporary("a rebuild has recreated the keyspace: trying again with it".to_owned());
        }
        lost_history(vec![self.keyspace.budget_shard(budget)], &format!("budget {budget}: {error}"))
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

/// The field of a budget's hash that tokens of this bucket are in: `lua/take.lua`. Of a period the bucket is its start.
pub(super) fn field(span: SpanNow, bucket: i64) -> String {
    match span {
        SpanNow::Rolling { .. } => bucket.to_string(),
        SpanNow::Period { .. } => format!("p{bucket}"),
        SpanNow::Total => "t".to_owned(),
    }
}

/// The answer in a reply, and the server's clock; `None` where it is none.
fn answer_in(parts: VecDeque<Value>) -> Option<(TakeAnswer, Time)> {
    let [granted, used, leased, bucket, free_in_ms, now, since] =
        redis::from_redis_value::<[i64; 7]>(Value::Array(parts.into())).ok()?;
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
