//! Writes budgets that were counted again into the ledger (`lua/restore_budget.lua`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redis::Value;
use weir_core::{
    basis::time::Time,
    limit::budget::{BudgetId, SpanNow, ledger::Account},
    ports::StoreError,
};

use super::{Command, Rebuild, ask_all, guarded, mark, names::LOST_AT, startup};
use crate::{
    cluster::Cluster,
    keyspace::Keyspace,
    ledger,
    node::Request,
    script::Script,
    stats::RetryCause,
    totals::{most_per_shard, taken_out},
};

const MAX_KEYS: usize = 1_000;
const MAX_NAMES: u32 = 500;
/// A key outlives the window or the period of what it holds by so much, as in `lua/take.lua`: for clocks that are ahead.
const CLOCKS_DIFFER_MS: i64 = 25 * 3_600_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetKeyState {
    /// It has no key: nothing that counts was granted, or it was lost.
    Absent,
    /// It has no key, and is of an unknown campaign, so it grants nothing; why.
    Unknown(String),
    Open,
    /// It grants nothing; why.
    Closed(String),
}

impl BudgetKeyState {
    fn to_text(&self) -> String {
        match self {
            Self::Absent | Self::Unknown(_) => "absent".to_owned(),
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
    pub limit: u64,
    pub held: Held,
}

/// A budget of which nobody knows which campaigns had used it: it is closed for those that have no key in a shard (`lua/take.lua`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCampaigns {
    pub budget: Arc<str>,
    /// When what they may have used no longer counts; `None`: never.
    pub until: Option<Time>,
    pub why: String,
}

impl UnknownCampaigns {
    fn to_field(&self) -> (String, String) {
        (self.budget.to_string(), format!("{} {}", self.until.map_or(0, Time::millis), self.why))
    }
}

pub struct BudgetRestorer {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    mark: String,
    shards: BTreeSet<u16>,
}

impl Rebuild {
    /// What looks at budgets and restores them, over connections of its own.
    pub fn budgets(&self) -> BudgetRestorer {
        let (cluster, keyspace) = (self.cluster.another(), Arc::clone(&self.keyspace));
        BudgetRestorer { cluster, mark: mark(&keyspace, &self.run), keyspace, shards: self.shards.clone() }
    }
}

impl BudgetRestorer {
    /// Whether it is in a shard that the run restores.
    pub fn is_restored(&self, budget: &BudgetId) -> bool {
        self.shards.contains(&self.keyspace.budget_shard(budget))
    }

    /// What these budgets are at `now`, in their order.
    pub async fn look(&mut self, budgets: &[BudgetId], now: Time) -> Result<Vec<BudgetKeyState>, StoreError> {
        let mut states = Vec::with_capacity(budgets.len());
        for some in budgets.chunks(MAX_KEYS) {
            let requests = some.iter().flat_map(|budget| {
                let shard = self.keyspace.budget_shard(budget);
                let (slot, key) = (self.keyspace.slot(shard), self.keyspace.budget_key(budget));
                let (exists, why) = (Request::plain("EXISTS", &key), Request::plain("HGET", (&key, "x")));
                let unknown = Request::plain("HGET", (self.keyspace.unknown_key(shard), &*budget.name));
                [exists, why, unknown].map(|request| (slot, request))
            });
            let replies = ask_all(&mut self.cluster, requests.collect()).await?;
            states.extend(some.iter().zip(replies.chunks_exact(3)).map(|(budget, reply)| match reply {
                [_, Value::BulkString(why), _] => BudgetKeyState::Closed(String::from_utf8_lossy(why).into_owned()),
                [Value::Int(0), _, Value::BulkString(unknown)] if budget.campaign.is_some() => {
                    why_unknown(unknown, now).map_or(BudgetKeyState::Absent, BudgetKeyState::Unknown)
                }
                [Value::Int(0), ..] => BudgetKeyState::Absent,
                _ => BudgetKeyState::Open,
            }));
        }
        Ok(states)
    }

    /// When names of campaigns were last lost, or may have been: some may be missing since. `None`: never.
    pub async fn names_lost_at(&mut self) -> Result<Option<Time>, StoreError> {
        let at = Request::plain("HGET", (self.keyspace.campaigns_key(), LOST_AT));
        let found = self.cluster.ask(self.keyspace.meta_slot(), at).await.map_err(startup)?;
        Ok(redis::from_redis_value::<Option<i64>>(found).ok().flatten().and_then(Time::from_millis))
    }

    /// Closes these budgets for unknown campaigns, in the shards that the run restores. One that has lost the run's mark is no longer the
    /// run's, and [`super::Rebuild::finish`] names it.
    pub async fn close_unknown(&mut self, budgets: &[UnknownCampaigns]) -> Result<(), StoreError> {
        if budgets.is_empty() {
            return Ok(());
        }
        let requests = self.shards.iter().map(|&shard| {
            let fields = budgets.iter().map(UnknownCampaigns::to_field);
            let close = Command::set_fields(self.keyspace.unknown_key(shard), fields);
            let guard = (self.keyspace.epoch_key(shard), self.mark.as_str());
            (self.keyspace.slot(shard), guarded(&[guard], &[close]))
        });
        let requests = requests.collect();
        ask_all(&mut self.cluster, requests).await.map(drop)
    }

    /// Opens a budget for unknown campaigns, in the shards that are in use. In those that the run restores it closes anew what it has to.
    pub async fn open_unknown(&mut self, budget: &str) -> Result<(), StoreError> {
        let in_use = (0..self.keyspace.meta().layout.shards).filter(|shard| !self.shards.contains(shard));
        let requests = in_use.map(|shard| {
            let open = Command::delete_fields(self.keyspace.unknown_key(shard), [budget.to_owned()]);
            let guard = (self.keyspace.epoch_key(shard), self.keyspace.epoch());
            (self.keyspace.slot(shard), guarded(&[guard], &[open]))
        });
        let requests = requests.collect();
        ask_all(&mut self.cluster, requests).await.map(drop)
    }

    /// The totals of campaigns that their shards have no room for, shard by shard: the last ones of `totals`, all of which are new to their
    /// shards.
    pub async fn without_room(&mut self, totals: &[BudgetId]) -> Result<Vec<BudgetId>, StoreError> {
        let most = most_per_shard(self.cluster.options().max_totals, self.keyspace.meta().layout.shards);
        let mut by_shard: BTreeMap<u16, Vec<&BudgetId>> = BTreeMap::new();
        for total in totals {
            by_shard.entry(self.keyspace.budget_shard(total)).or_default().push(total);
        }
        let length =
            |&shard: &u16| (self.keyspace.slot(shard), Request::plain("HLEN", self.keyspace.totals_key(shard)));
        let lengths = by_shard.keys().map(length).collect();
        let lengths = ask_all(&mut self.cluster, lengths).await?;
        let mut beyond = Vec::new();
        for (totals, length) in by_shard.into_values().zip(lengths) {
            let length = redis::from_redis_value::<u32>(length).unwrap_or_default();
            let room = usize::try_from(most.saturating_sub(length)).unwrap_or(usize::MAX);
            beyond.extend(totals.into_iter().skip(room).cloned());
        }
        Ok(beyond)
    }

    /// Marks totals of campaigns as gone: they count as spent (`lua/make_room.lua`). They have no key, and the run restores their shards.
    /// Totals of one shard that follow each other are marked together.
    pub async fn mark_gone(&mut self, totals: &[BudgetId]) -> Result<(), StoreError> {
        let shard = |total: &BudgetId| self.keyspace.budget_shard(total);
        let mut requests = Vec::new();
        for some in totals.chunk_by(|one, next| shard(one) == shard(next)) {
            let of = shard(&some[0]);
            let keys = some.iter().map(|total| (self.keyspace.budget_key(total), String::new()));
            let calls = taken_out(&self.keyspace, (of, self.mark.as_str()), &keys.collect::<Vec<_>>());
            requests.extend(calls.into_iter().map(|call| (self.keyspace.slot(of), call)));
        }
        ask_all(&mut self.cluster, requests).await.map(drop)
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
        let BudgetChange { found, becomes, span, limit, held } = change;
        let shard = self.keyspace.budget_shard(budget);
        let epoch = if self.is_restored(budget) { self.mark.as_str() } else { self.keyspace.epoch() };
        let (verb, account) = match held {
            Held::Add(account) => ("keep", account),
            Held::Replace(account) => ("replace", account),
        };
        let times = [lasts_ms(*span, account, now), now.millis()].map(|number| number.to_string());
        let mut args = vec![epoch.to_owned(), found.to_text(), becomes.to_text()];
        args.extend(times);
        args.extend([verb.to_owned(), limit.to_string()]);
        for (place, tokens) in account.charges() {
            args.extend([ledger::field(*span, place), tokens.to_string()]);
        }
        let mut keys = vec![self.keyspace.epoch_key(shard), self.keyspace.budget_key(budget)];
        if budget.is_total_of_campaign(*span) {
            keys.push(self.keyspace.totals_key(shard));
        }
        let call = Request::call(Script::RestoreBudget, keys, args);
        let reply = self.cluster.ask(self.keyspace.slot(shard), call).await.map_err(|error| {
            if error.cause != RetryCause::LostHistory {
                return startup(error);
            }
            let message =
                format!("budget {budget}: {error}: its shard has lost its history, or another run restores it");
            StoreError::LostHistory { shards: vec![shard], message }
        })?;
        let text: String = redis::from_redis_value(reply).unwrap_or_default();
        // The script does not know whether a campaign is unknown.
        Ok(if text == found.to_text() { (*found).clone() } else { BudgetKeyState::of_text(&text) })
    }

    /// The names of all campaigns that have a number.
    pub async fn campaigns(&mut self) -> Result<Vec<Arc<str>>, StoreError> {
        let slot = self.keyspace.meta_slot();
        let next = Request::plain("HGET", (self.keyspace.campaigns_key(), "next"));
        let next = self.cluster.ask(slot, next).await.map_err(startup)?;
        let next = redis::from_redis_value::<Option<u32>>(next).ok().flatten().unwrap_or(1);
        let mut names: Vec<Arc<str>> = Vec::new();
        for first in (1..next).step_by(MAX_NAMES as usize) {
            let numbers: Vec<u32> = (first..next.min(first + MAX_NAMES)).collect();
            let some = Request::plain("HMGET", (self.keyspace.campaign_names_key(), numbers));
            let some = self.cluster.ask(slot, some).await.map_err(startup)?;
            let some: Vec<Option<String>> = redis::from_redis_value(some).unwrap_or_default();
            names.extend(some.iter().flatten().filter_map(|name| name.strip_prefix('=')).map(Arc::from));
        }
        Ok(names)
    }
}

/// Why a campaign without a key is closed at `now`, by what its shard has of its budget; `None`: it is not.
fn why_unknown(field: &[u8], now: Time) -> Option<String> {
    let text = String::from_utf8_lossy(field);
    let (until, why) = text.split_once(' ')?;
    let until: i64 = until.parse().ok()?;
    (until == 0 || until > now.millis()).then(|| why.to_owned())
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
