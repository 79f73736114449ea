//! A ledger in memory: the reference that `lua/take.lua`, `lua/give_back.lua` and `lua/restore_budget.lua` must equal.

use std::collections::BTreeMap;

use super::{
    Account, CountId, GiveBack, Grain, TakeAnswer, TakeRequest,
    account::rounded_up,
    turns::{Done, LastTurn},
};
use crate::{
    budget::{BudgetId, SpanNow},
    time::Time,
};

/// The parts of a lease that its end is rounded up to, so that a holder has few leases to be remembered.
const LEASE_PARTS: i64 = 4;

/// The tokens granted of all budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    accounts: BTreeMap<BudgetId, LedgerAccount>,
}

/// What was granted of one budget, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LedgerAccount {
    /// Since when its tokens are counted, in ms since 1970; 0: for ever.
    since: i64,
    /// The tokens of rolling windows, in the buckets that their leases end in.
    rolling: Account,
    /// Those of calendar periods.
    periods: Account,
    /// Those of all time.
    total: Account,
    /// Each holder's leases.
    holders: BTreeMap<String, Leases>,
    /// Each holder's last turn of asking for tokens.
    takes: BTreeMap<String, LastTurn>,
    /// The same of giving some back.
    returns: BTreeMap<String, LastTurn>,
}

/// One holder's leases: when they end -> tokens.
type Leases = BTreeMap<i64, u64>;

impl Book {
    /// Grants tokens to a holder at a moment; to a turn that is repeated the same ones.
    pub fn take(&mut self, now: Time, holder: &str, request: &TakeRequest) -> TakeAnswer {
        let now = now.millis();
        if request.want == 0 {
            // A look changes nothing.
            let mut account = self.accounts.get(&request.budget).cloned().unwrap_or_else(|| LedgerAccount::new(now));
            return account.take(now, holder, (request, None));
        }
        let account = self.accounts.entry(request.budget.clone()).or_insert_with(|| LedgerAccount::new(now));
        if let Some(turn) = request.turn
            && let Some(last) = account.takes.get_mut(holder).filter(|last| last.is_kept(now))
            && let Some(done) = last.find(turn)
        {
            // Neither does what was done before.
            last.again(now);
            return account.clone().take(now, holder, (request, Some(done)));
        }
        account.take(now, holder, (request, None))
    }

    /// Takes tokens back from a holder at a moment; gives how many. None that no longer count, and none of an earlier count. A turn that
    /// is repeated takes no more back, and one of a run before the last one takes none.
    pub fn give_back(&mut self, now: Time, holder: &str, given: &GiveBack) -> u64 {
        let Some(account) = self.accounts.get_mut(&given.budget) else { return 0 };
        if CountId(account.since) != given.count_id {
            return 0;
        }
        let now = now.millis();
        if let Some(turn) = given.turn
            && let Some(last) = account.returns.get_mut(holder)
        {
            if last.is_of_later_run(turn) {
                return 0;
            }
            if let Some(done) = last.find(turn) {
                last.again(now);
                return done.tokens;
            }
        }
        let place = if given.span == SpanNow::Total { 0 } else { given.bucket };
        let back = account.tokens(given.span).take_back(place, given.tokens);
        if back > 0 {
            account.release(now, holder, back);
            if let Some(turn) = given.turn {
                let done = Done { tokens: back, bucket: given.bucket };
                account.returns.insert(holder.to_owned(), LastTurn::new(turn, now, done));
            }
        }
        back
    }

    /// Counts a budget anew at a moment: it holds these tokens, and no leases. No two counts of it begin at once.
    pub fn recount(&mut self, now: Time, budget: &BudgetId, span: SpanNow, tokens: &Account) {
        let now = now.millis();
        let mut account = LedgerAccount::new(self.accounts.get(budget).map_or(now, |before| now.max(before.since + 1)));
        account.tokens(span).clone_from(tokens);
        self.accounts.insert(budget.clone(), account);
    }
}

impl LedgerAccount {
    /// It counts from now: a lost account that no rebuild has written looks like a new one.
    fn new(now: i64) -> Self {
        let (rolling, periods, total, holders, takes, returns) = Default::default();
        Self { since: now, rolling, periods, total, holders, takes, returns }
    }

    /// Those of this kind of span.
    fn tokens(&mut self, span: SpanNow) -> &mut Account {
        match span {
            SpanNow::Rolling { .. } => &mut self.rolling,
            SpanNow::Period { .. } => &mut self.periods,
            SpanNow::Total => &mut self.total,
        }
    }

    /// Answers a request; `done`: what it came to before, where it is repeated.
    fn take(&mut self, now: i64, holder: &str, (request, done): (&TakeRequest, Option<Done>)) -> TakeAnswer {
        let TakeRequest { span, limit, least, .. } = *request;
        self.drop_ended(now, span);
        let (granted, bucket) = match done {
            Some(done) => (done.tokens, done.bucket),
            None => self.grant(now, holder, request),
        };
        let tokens = self.tokens(span);
        let (used, free_in_ms) = (tokens.used(span, now), tokens.free_in_ms(span, now, limit, least));
        let leased: u64 = self.holders.values().flat_map(|leases| leases.range(now + 1..)).map(|(_, held)| held).sum();
        let counted_for_ms = (now - self.since).max(0);
        let count_id = CountId(self.since);
        TakeAnswer { granted, used, leased: leased.min(used), bucket, free_in_ms, counted_for_ms, count_id }
    }

    /// Grants tokens; gives how many, and their bucket.
    fn grant(&mut self, now: i64, holder: &str, request: &TakeRequest) -> (u64, i64) {
        let TakeRequest { span, limit, need, want, unit, least, lease_ms, .. } = *request;
        let left = limit.saturating_sub(self.tokens(span).used(span, now));
        let others = self.holders.keys().filter(|other| other.as_str() != holder).count() as u64;
        let granted = match want.min(left / (2 * (others + 1))) {
            share if share < need => need.min(left),
            share => share,
        };
        let granted = granted - granted % unit;
        let granted = if granted < least || want == 0 { 0 } else { granted };
        let bucket = Grain::Bucket.place(span, now + lease_ms);
        self.tokens(span).add(bucket, granted);
        let ends = rounded_up(now + lease_ms, lease_ms / LEASE_PARTS);
        let own = self.holders.entry(holder.to_owned()).or_default();
        own.retain(|ends, _| *ends > now);
        *own.entry(ends).or_default() += granted;
        if let Some(turn) = request.turn {
            let done = Done { tokens: granted, bucket };
            self.takes.insert(holder.to_owned(), LastTurn::new(turn, now, done));
        }
        (granted, bucket)
    }

    /// Drops what no longer counts.
    fn drop_ended(&mut self, now: i64, span: SpanNow) {
        self.tokens(span).drop_ended(span, now);
        // A holder keeps its ended leases until the last one ends: if the clock goes back, they count again.
        self.holders.retain(|_, leases| leases.range(now + 1..).next().is_some());
        self.takes.retain(|_, last| last.is_kept(now));
        self.returns.retain(|_, last| last.is_kept(now));
    }

    /// Takes tokens out of a holder's leases, those that end first. A holder that has none left is none.
    fn release(&mut self, now: i64, holder: &str, tokens: u64) {
        let Some(leases) = self.holders.get_mut(holder) else { return };
        leases.retain(|ends, _| *ends > now);
        if leases.values().sum::<u64>() <= tokens {
            self.holders.remove(holder);
            return;
        }
        let mut rest = tokens;
        for held in leases.values_mut() {
            let part = rest.min(*held);
            *held -= part;
            rest -= part;
        }
    }
}
