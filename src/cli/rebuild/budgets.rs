//! Budgets in a rebuild: all of the shards that it restores, and those that are to be counted again.
//!
//! A budget grants nothing while its shard is marked: whether its key is there or not, it is counted anew, because a node that came
//! back with an old snapshot has lost what was spent since. One of another shard that is counted again is closed meanwhile, under a
//! text that only this run has. Where the approved topic does not reach back to the start of a budget's window, the budget stays closed
//! until a person says what was used before.

mod campaigns;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use weir_core::{
    basis::time::Time,
    limit::budget::{
        Budget, BudgetId, SpanNow,
        lease::LONGEST_LEASE,
        ledger::{Account, Recount},
    },
    policy::Policy,
    ports::Clock as _,
};
use weir_kafka::extents::Extent;
use weir_redis::rebuild::{BudgetChange, BudgetKeyState, BudgetRestorer, Held, Rebuild};

use super::{
    CLOCKS_DIFFER_MS, approved,
    count::Count,
    fill::{Fill, keep_lock},
    named_budgets::{
        Command::{Again, Both, UsedBefore},
        NamedBudgets,
    },
    patient::{self, MOST_TRIES, patiently},
    summary::{BudgetLine, BudgetOutcome},
};

/// What a budget that is being counted again is closed with; the run's name follows.
const COUNTING: &str = "weir rebuild --budget counts it again: ";
/// The lock is renewed after so many budgets have been written.
const KEEP_LOCK_EVERY: usize = 500;
/// A record's time may differ from the time of its decision by so much, in milliseconds.
const RECORDS_DIFFER_MS: i64 = 5 * 60 * 1000;

pub(super) struct RebuildBudgets {
    policy: Arc<Policy>,
    named: NamedBudgets,
    restorer: BudgetRestorer,
    run: String,
    /// Those that are to be written, and what they have to be then.
    open: BTreeMap<BudgetId, BudgetKeyState>,
    /// Names of budgets to which the approved topic does not reach back.
    too_short: BTreeSet<Arc<str>>,
    count: Option<Count>,
    /// When the last of them was closed.
    closed_at: Time,
    lines: BTreeMap<BudgetId, BudgetLine>,
    pub(super) has_counted: bool,
    /// Totals of campaigns that their shards had no room for.
    pub(super) gone: usize,
}

impl RebuildBudgets {
    /// Looks at the budgets, opens those whose use a person has said, and closes those that are to be counted again.
    pub(super) async fn begin(
        rebuild: &Rebuild,
        fill: &Fill,
        policy: Arc<Policy>,
        named: NamedBudgets,
    ) -> anyhow::Result<Self> {
        let now = fill.clock.time_to_decide(&[])?;
        let mut budgets = Self {
            policy,
            named,
            restorer: rebuild.budgets(),
            run: rebuild.run.clone(),
            open: BTreeMap::new(),
            too_short: BTreeSet::new(),
            count: None,
            closed_at: now,
            lines: BTreeMap::new(),
            has_counted: false,
            gone: 0,
        };
        let ids = budgets.known().await?;
        let states = patiently(async || budgets.restorer.look(&ids, now).await).await?;
        let each = !rebuild.shards.is_empty();
        let names = budgets.counted(ids.iter().zip(&states), each);
        budgets.measure(fill, &names, now).await?;
        for (id, state) in ids.into_iter().zip(states) {
            budgets.sort(id, state, now).await?;
        }
        budgets.open_unknown().await?;
        let is_counted = |budget: &&Budget| names.contains(&budget.name);
        let empty = Recount::new(budgets.policy.budgets.iter().filter(is_counted), &budgets.policy.timezone, now);
        let since = empty.starts_at().filter(|_| each || !budgets.open.is_empty());
        budgets.count = since.map(|since| {
            let since = since.plus(-CLOCKS_DIFFER_MS).max(Time::from_millis(0).unwrap_or(Time::MIN));
            Count::new(empty, since)
        });
        budgets.closed_at = fill.clock.time_to_decide(&[])?;
        Ok(budgets)
    }

    pub(super) fn is_counting(&self) -> bool {
        self.count.is_some()
    }

    /// When all that was spent before is visible on the approved topic, or void: leases have ended too.
    pub(super) fn settled_at(&self, marked_at: Option<Time>, settle: Duration) -> Time {
        let is_closed = |state: &BudgetKeyState| matches!(state, BudgetKeyState::Closed(_));
        let closed_at = self.open.values().any(is_closed).then_some(self.closed_at);
        let from = marked_at.into_iter().chain(closed_at).max().unwrap_or(self.closed_at);
        // Without a wait no worker runs, and none spends a lease. Else the longest one counts: what the ledger and the policy say now is not
        // what leases were granted by, which a node has lost, or another version of the policy.
        let leases = if settle.is_zero() || !self.is_counting() { Duration::ZERO } else { LONGEST_LEASE };
        from.plus(i64::try_from((settle + leases).as_millis()).unwrap_or(i64::MAX))
    }

    pub(super) async fn count(&mut self, rebuild: &mut Rebuild, fill: &Fill) -> anyhow::Result<()> {
        match &mut self.count {
            Some(count) => count.read(rebuild, fill).await,
            None => Ok(()),
        }
    }

    /// Writes what was counted. After an error, what is not written stays closed, or its shard marked.
    pub(super) async fn write(&mut self, rebuild: &mut Rebuild, fill: &Fill) -> anyhow::Result<()> {
        let Some(count) = self.count.take() else { return Ok(()) };
        self.has_counted = true;
        let now = fill.clock.time_to_decide(&[])?;
        self.add_campaigns(&count.counted, now).await?;
        let complete_since = count.complete_since(now).unwrap_or(now);
        if !rebuild.shards.is_empty() {
            self.close_unknown(complete_since, now).await?;
            self.make_room(rebuild, &count.counted, now).await?;
        }
        let open = std::mem::take(&mut self.open);
        for (place, (id, found)) in open.into_iter().enumerate() {
            if place % KEEP_LOCK_EVERY == 0 {
                keep_lock(rebuild).await?;
            }
            let Some(budget) = self.budget(&id) else { continue };
            let span = budget.span.at(&self.policy.timezone, now);
            let mut account = count.counted.of(&id);
            let given = self.named.used(&id);
            add(&mut account, span, given.unwrap_or(0), now);
            let used = account.used(span, now.millis());
            let is_short = given.is_none() && self.too_short.contains(&id.name);
            let line = if is_short {
                let message = format!("approvals before {complete_since} are no longer on the approved topic");
                BudgetLine::closed(&id, message, UsedBefore.of(&id)).with_used(used)
            } else if found == BudgetKeyState::Absent {
                BudgetLine::done(&id, BudgetOutcome::Restored, used)
            } else {
                BudgetLine::done(&id, BudgetOutcome::Recounted, used)
            };
            let becomes = if is_short { BudgetKeyState::Closed(line.message.clone()) } else { BudgetKeyState::Open };
            // Without a key, its campaign may be unknown.
            let needs_none = found == BudgetKeyState::Absent && !self.too_short.contains(&id.name);
            let is_nothing = needs_none && account == Account::default();
            let change =
                BudgetChange { found: &found, becomes, span, limit: budget.limit, held: Held::Replace(account) };
            let is_done = is_nothing || patient::change(&mut self.restorer, &id, &change, now).await?;
            let line = if is_done { line } else { taken_meanwhile(&id, given.is_some()) };
            self.lines.insert(id, line);
        }
        Ok(())
    }

    pub(super) fn into_lines(self) -> Vec<BudgetLine> {
        self.lines.into_values().collect()
    }

    /// The budgets that can be named before anything is counted: all but those of campaigns that nobody has named.
    async fn known(&mut self) -> anyhow::Result<Vec<BudgetId>> {
        let shared = self.policy.budgets.iter().filter(|budget| !budget.is_of_each_campaign());
        let shared = shared.map(|budget| BudgetId { name: Arc::clone(&budget.name), campaign: None });
        let mut ids: BTreeSet<BudgetId> = shared.chain(self.named.ids().cloned()).collect();
        let all: Vec<Arc<str>> = self.named.all_campaigns.iter().cloned().collect();
        if !all.is_empty() {
            let campaigns = self.campaigns().await?;
            let of = |name: &Arc<str>, campaign: &Arc<str>| BudgetId {
                name: Arc::clone(name),
                campaign: Some(Arc::clone(campaign)),
            };
            ids.extend(all.iter().flat_map(|name| campaigns.iter().map(move |campaign| of(name, campaign))));
        }
        Ok(ids.into_iter().collect())
    }

    /// Notes to which of these budgets the approved topic does not reach back.
    async fn measure(&mut self, fill: &Fill, names: &BTreeSet<Arc<str>>, now: Time) -> anyhow::Result<()> {
        let mut known: BTreeMap<Time, bool> = BTreeMap::new();
        for budget in self.policy.budgets.iter().filter(|budget| names.contains(&budget.name)) {
            let start = budget.span.at(&self.policy.timezone, now).start(now);
            if let Entry::Vacant(new) = known.entry(start) {
                let asked = start.plus(-RECORDS_DIFFER_MS).max(Time::from_millis(0).unwrap_or(Time::MIN));
                new.insert(reach_back(&approved::extents(&fill.kafka, asked).await?));
            }
            if !known[&start] {
                self.too_short.insert(Arc::clone(&budget.name));
            }
        }
        Ok(())
    }

    /// The names of budgets whose approvals have to be counted. Of campaigns it is not known yet which there are.
    fn counted<'b>(
        &self,
        found: impl Iterator<Item = (&'b BudgetId, &'b BudgetKeyState)>,
        each: bool,
    ) -> BTreeSet<Arc<str>> {
        let is_counted =
            |(id, state): &(&BudgetId, &BudgetKeyState)| self.restorer.is_restored(id) || self.is_asked(id, state);
        let campaigns = self.policy.budgets.iter().filter(|budget| each && budget.is_of_each_campaign());
        let named = found.filter(is_counted).map(|(id, _)| &id.name);
        named.chain(campaigns.map(|budget| &budget.name)).cloned().collect()
    }

    /// Whether it is to be counted again; also where a run that did so has left it closed, and its use is given.
    fn is_asked(&self, id: &BudgetId, state: &BudgetKeyState) -> bool {
        match state {
            BudgetKeyState::Absent => self.named.is_named(id),
            BudgetKeyState::Open | BudgetKeyState::Unknown(_) => self.named.is_asked(id),
            BudgetKeyState::Closed(why) => {
                self.named.is_asked(id) || self.named.used(id).is_some() && why.starts_with(COUNTING)
            }
        }
    }

    /// What is to be done with a budget that was found so.
    async fn sort(&mut self, id: BudgetId, state: BudgetKeyState, now: Time) -> anyhow::Result<()> {
        if self.restorer.is_restored(&id) {
            self.open.insert(id, state);
        } else if self.is_asked(&id, &state) {
            self.close(id, state, now).await?;
        } else {
            match (state, self.named.used(&id)) {
                (state @ (BudgetKeyState::Closed(_) | BudgetKeyState::Unknown(_)), Some(tokens)) => {
                    self.open_with(id, state, tokens, now).await?;
                }
                (BudgetKeyState::Closed(why) | BudgetKeyState::Unknown(why), None) => {
                    let line = left_closed(&id, why);
                    self.lines.insert(id, line);
                }
                (BudgetKeyState::Open, Some(_)) => {
                    let line = BudgetLine::unchanged(&id, "it is open, and was not counted again", Both.of(&id));
                    self.lines.insert(id, line);
                }
                (BudgetKeyState::Absent, Some(_)) => {
                    let message =
                        "it has no key: it is unused, or a total that had to make room (redis.max_totals) and is spent";
                    let line = BudgetLine::unchanged(&id, message, Both.of(&id));
                    self.lines.insert(id, line);
                }
                (BudgetKeyState::Absent | BudgetKeyState::Open, None) => {}
            }
        }
        Ok(())
    }

    /// Closes a budget, to be counted again; not where the count would not be complete.
    async fn close(&mut self, id: BudgetId, found: BudgetKeyState, now: Time) -> anyhow::Result<()> {
        if self.too_short.contains(&id.name) && self.named.used(&id).is_none() {
            let message = "the approved topic does not reach back to the start of its window";
            let line = match found {
                BudgetKeyState::Absent | BudgetKeyState::Open => BudgetLine::unchanged(&id, message, Both.of(&id)),
                BudgetKeyState::Closed(_) | BudgetKeyState::Unknown(_) => {
                    BudgetLine::closed(&id, message, Both.of(&id))
                }
            };
            self.lines.insert(id, line);
            return Ok(());
        }
        let Some(budget) = self.budget(&id) else { return Ok(()) };
        let span = budget.span.at(&self.policy.timezone, now);
        let ours = self.close_as_ours(&id, found, (span, now)).await?;
        self.open.insert(id, ours);
        Ok(())
    }

    /// Closes a budget under the text that only this run has; gives what it is then.
    async fn close_as_ours(
        &mut self,
        id: &BudgetId,
        mut found: BudgetKeyState,
        (span, now): (SpanNow, Time),
    ) -> anyhow::Result<BudgetKeyState> {
        let ours = BudgetKeyState::Closed(format!("{COUNTING}{}", self.run));
        let limit = self.budget(id).map_or(0, |budget| budget.limit);
        // Somebody may take from it meanwhile.
        for _ in 0..MOST_TRIES {
            let change =
                BudgetChange { found: &found, becomes: ours.clone(), span, limit, held: Held::Add(Account::default()) };
            let was = patiently(async || self.restorer.change(id, &change, now).await).await?;
            if was == found || was == ours {
                return Ok(ours);
            }
            found = was;
        }
        anyhow::bail!("budget {id} cannot be closed: another program changes it")
    }

    /// Opens a budget that a run has counted and left closed, or that of an unknown campaign.
    async fn open_with(&mut self, id: BudgetId, found: BudgetKeyState, tokens: u64, now: Time) -> anyhow::Result<()> {
        let Some(budget) = self.budget(&id) else { return Ok(()) };
        let (span, limit) = (budget.span.at(&self.policy.timezone, now), budget.limit);
        // A change that is made again is told by what the budget was closed with.
        let is_unknown = matches!(found, BudgetKeyState::Unknown(_));
        let found = if is_unknown { self.close_as_ours(&id, found, (span, now)).await? } else { found };
        let mut account = Account::default();
        add(&mut account, span, tokens, now);
        let becomes = BudgetKeyState::Open;
        let change = BudgetChange { found: &found, becomes, span, limit, held: Held::Add(account) };
        let line = if patient::change(&mut self.restorer, &id, &change, now).await? {
            BudgetLine::done(&id, BudgetOutcome::Opened, tokens)
        } else {
            taken_meanwhile(&id, true)
        };
        self.lines.insert(id, line);
        Ok(())
    }

    fn budget(&self, id: &BudgetId) -> Option<&Budget> {
        self.policy.budgets.iter().find(|budget| budget.name == id.name)
    }
}

/// Whether a topic holds all records of the time that its extents were asked for, and later.
fn reach_back(extents: &[Extent]) -> bool {
    extents.iter().all(|extent| extent.low == 0 || extent.since > extent.low)
}

/// Adds tokens that were used before: they leave a rolling window after a whole window.
fn add(account: &mut Account, span: SpanNow, tokens: u64, now: Time) {
    account.add(span.bucket(now.millis()), tokens);
}

/// A budget that was closed to be counted, and is no longer closed although this run has not opened it. It is left unchanged: the count may
/// lack what was taken from it since.
fn taken_meanwhile(id: &BudgetId, is_use_given: bool) -> BudgetLine {
    let message = "it is no longer closed: Redis lost that mark, so a worker may have taken from it meanwhile, or it had to make room for \
                   others";
    let command = if is_use_given { Both } else { Again };
    BudgetLine::unchanged(id, message, command.of(id))
}

/// What another run has left closed.
fn left_closed(id: &BudgetId, why: String) -> BudgetLine {
    if why.starts_with(COUNTING) {
        BudgetLine::closed(id, "a run that counted it again did not finish", Again.of(id))
    } else {
        BudgetLine::closed(id, why, UsedBefore.of(id))
    }
}
