//! Writes budgets that were counted again into the ledger (`lua/restore_budget.lua`).

use std::{collections::BTreeSet, sync::Arc};

use redis::{Value, cmd};
use weir_core::{
    basis::time::Time,
    limit::budget::{BudgetId, SpanNow, ledger::Account},
    ports::StoreError,
};

use super::{ask_all, startup};
use crate::{cluster::Cluster, keyspace::Keyspace, ledger, node::Request, request_error::RequestError, script::Script};

/// Keys asked for together, at most.
const MAX_KEYS: usize = 1_000;
/// Names asked for together, at most.
const MAX_NAMES: u32 = 500;
/// A key outlives the window or the period of what it holds by so much, as in `lua/take.lua`: for clocks that are ahead.
const CLOCKS_DIFFER_MS: i64 = 25 * 3_600_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetKeyState {
    /// It has no key: nothing that counts was granted, or it was lost.
    Absent,
    Open,
    /// It grants nothing; why.
    Closed(String),
}

impl BudgetKeyState {
    fn to_text(&self) -> String {
        match self {
            Self::Absent => "absent".to_owned(),
            Self::Open => "open".to_owned(),
            Self::Closed(why) => format!("x{why}"),
        }
    }

    fn of_text(text: &str) -> Self {
        match (text, text.strip_prefix('x')) {
            ("absent", _) => Self::Absent,
            (_, Some(why)) => Self::Closed(why.to_owned()),
            (_, None) => Self::Open,
        }
    }
}

/// What becomes of the tokens that a budget holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Add(Account),
    Replace(Account),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetChange<'c> {
    /// What it has to be.
    pub found: &'c BudgetKeyState,
    pub becomes: BudgetKeyState,
    pub span: SpanNow,
    pub held: Held,
}

pub struct BudgetRestorer {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    mark: String,
    shards: BTreeSet<u16>,
}

impl BudgetRestorer {
    pub(super) fn new(cluster: Cluster, keyspace: Arc<Keyspace>, mark: String, shards: BTreeSet<u16>) -> Self {
        Self { cluster, keyspace, mark, shards }
    }

    /// Whether it is in a shard that the run restores.
    #[must_use]
    pub fn is_restored(&self, budget: &BudgetId) -> bool {
        self.shards.contains(&self.keyspace.budget_shard(budget))
    }

    /// What these budgets are, in their order.
    ///
    /// # Errors
    /// Redis is unavailable.
    pub async fn look(&mut self, budgets: &[BudgetId]) -> Result<Vec<BudgetKeyState>, StoreError> {
        let mut states = Vec::with_capacity(budgets.len());
        for some in budgets.chunks(MAX_KEYS) {
            let requests = some.iter().flat_map(|budget| {
                let (slot, key) =
                    (self.keyspace.slot(self.keyspace.budget_shard(budget)), self.keyspace.budget_key(budget));
                let (mut exists, mut why) = (cmd("EXISTS"), cmd("HGET"));
                exists.arg(&key);
                why.arg(&key).arg("x");
                [(slot, Request::Plain(exists)), (slot, Request::Plain(why))]
            });
            let replies = ask_all(&mut self.cluster, requests.collect()).await?;
            states.extend(replies.chunks_exact(2).map(|reply| match reply {
                [_, Value::BulkString(why)] => BudgetKeyState::Closed(String::from_utf8_lossy(why).into_owned()),
                [Value::Int(0), _] => BudgetKeyState::Absent,
                _ => BudgetKeyState::Open,
            }));
        }
        Ok(states)
    }

    /// Changes a budget, where it is what was found; gives what it was then. To do it again changes nothing, and gives the same where that opens
    /// a closed budget. `now` is by a clock that most others agree with.
    ///
    /// # Errors
    /// Redis is unavailable; or the budget's shard has lost its history, or is another run's.
    pub async fn change(
        &mut self,
        budget: &BudgetId,
        change: &BudgetChange<'_>,
        now: Time,
    ) -> Result<BudgetKeyState, StoreError> {
        let BudgetChange { found, becomes, span, held } = change;
        let shard = self.keyspace.budget_shard(budget);
        let epoch = if self.is_restored(budget) { self.mark.as_str() } else { self.keyspace.epoch() };
        let (verb, account) = match held {
            Held::Add(account) => ("keep", account),
            Held::Replace(account) => ("replace", account),
        };
        let times = [lasts_ms(*span, account, now), now.millis()].map(|number| number.to_string());
        let mut args = vec![epoch.to_owned(), found.to_text(), becomes.to_text()];
        args.extend(times);
        args.push(verb.to_owned());
        for (place, tokens) in account.charges() {
            args.extend([ledger::field(*span, place), tokens.to_string()]);
        }
        let mut keys = vec![self.keyspace.epoch_key(shard), self.keyspace.budget_key(budget)];
        if budget.is_total_of_campaign(*span) {
            keys.push(self.keyspace.totals_key(shard));
        }
        let args = args.into_iter().map(String::into_bytes).collect();
        let call = Request::Call { script: Script::RestoreBudget, keys, args, latest: None };
        let reply = self.cluster.ask(self.keyspace.slot(shard), call).await.map_err(|error| match error {
            RequestError::LostHistory { message } => {
                let message =
                    format!("budget {budget}: {message}: its shard has lost its history, or another run restores it");
                StoreError::LostHistory { shards: vec![shard], message }
            }
            error @ (RequestError::Moved { .. }
            | RequestError::Ask { .. }
            | RequestError::Apart { .. }
            | RequestError::NoScript { .. }
            | RequestError::Unavailable { .. }
            | RequestError::Refused { .. }) => startup(error),
        })?;
        let text: String = redis::from_redis_value(reply).unwrap_or_default();
        Ok(BudgetKeyState::of_text(&text))
    }

    /// The names of all campaigns that have a number.
    ///
    /// # Errors
    /// Redis is unavailable.
    pub async fn campaigns(&mut self) -> Result<Vec<Arc<str>>, StoreError> {
        let slot = self.keyspace.meta_slot();
        let mut command = cmd("HGET");
        command.arg(self.keyspace.campaigns_key()).arg("next");
        let next = self.cluster.ask(slot, Request::Plain(command)).await.map_err(startup)?;
        let next = redis::from_redis_value::<Option<u32>>(next).ok().flatten().unwrap_or(1);
        let mut names: Vec<Arc<str>> = Vec::new();
        for first in (1..next).step_by(MAX_NAMES as usize) {
            let mut command = cmd("HMGET");
            command.arg(self.keyspace.campaign_names_key());
            for number in first..next.min(first + MAX_NAMES) {
                command.arg(number);
            }
            let some = self.cluster.ask(slot, Request::Plain(command)).await.map_err(startup)?;
            let some: Vec<Option<String>> = redis::from_redis_value(some).unwrap_or_default();
            names.extend(some.iter().flatten().filter_map(|name| name.strip_prefix('=')).map(Arc::from));
        }
        Ok(names)
    }
}

/// How long a budget's key has to last, in milliseconds; 0: without end.
fn lasts_ms(span: SpanNow, account: &Account, now: Time) -> i64 {
    match span {
        SpanNow::Rolling { window_ms } => {
            let last = account.charges().next_back().map_or(0, |(place, _)| place).max(now.millis());
            last + window_ms - now.millis() + CLOCKS_DIFFER_MS
        }
        SpanNow::Period { end, .. } => (end.millis() - now.millis()).max(0) + CLOCKS_DIFFER_MS,
        SpanNow::Total => 0,
    }
}
