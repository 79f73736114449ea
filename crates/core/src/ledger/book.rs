//! A ledger in memory: the reference that `lua/take.lua`, `lua/give_back.lua` and `lua/restore_budget.lua` must equal.

use std::collections::BTreeMap;

use super::{Account, CountId, GiveBack, Grain, TakeAnswer, TakeRequest, account::rounded_up};
use crate::{
    budget::{BudgetId, SpanNow},
    limit::share::{Member, MemberRecords, TurnNumber, TurnOrder},
    time::Time,
};

/// The parts of a lease that its end is rounded up to, so that a holder has few leases to be remembered.
const LEASE_PARTS: i64 = 4;
/// How long a turn is known after it was made last, in milliseconds: whoever has no answer repeats it far more often.
const TURN_KEPT_MS: i64 = 3_600_000;

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
    /// Each holder's last turn of asking for tokens: it holds those that it was granted then, in a bucket.
    takes: MemberRecords<i64>,
    /// The same of giving some back.
    returns: MemberRecords<i64>,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Done {
    /// How many tokens were granted, or taken back.
    tokens: u64,
    /// The bucket that they were granted in.
    bucket: i64,
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
        if let Some(done) = request.turn.and_then(|turn| made_again(&mut account.takes, holder, turn, now)) {
            // Neither does what was done before.
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
        if let Some(turn) = given.turn {
            if account.returns.order(holder, turn, now) == TurnOrder::RunBefore {
                return 0;
            }
            if let Some(done) = made_again(&mut account.returns, holder, turn, now) {
                return done.tokens;
            }
        }
        let place = if given.span == SpanNow::Total { 0 } else { given.bucket };
        let back = account.tokens(given.span).take_back(place, given.tokens);
        if back > 0 {
            account.release(now, holder, back);
            if let Some(turn) = given.turn {
                account.returns.renew(holder, made(turn, now, Done { tokens: back, bucket: given.bucket }));
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

/// A turn, as it is known from now on.
fn made(turn: TurnNumber, now: i64, Done { tokens, bucket }: Done) -> Member<i64> {
    Member { last: turn, ends: now + TURN_KEPT_MS, held: tokens, wanted: 0, more: bucket }
}

/// What a turn came to that its holder has made before; `None`: it is new. It is known for as long again. Of one that another came after,
/// the answer is not known any more: nothing.
fn made_again(turns: &mut MemberRecords<i64>, holder: &str, turn: TurnNumber, now: i64) -> Option<Done> {
    let Member { last, held, more, .. } = *turns.get(holder, now)?;
    let done = Done { tokens: held, bucket: more };
    let came_to = match turn.after(last) {
        TurnOrder::Same => done,
        TurnOrder::Behind => Done::default(),
        TurnOrder::New | TurnOrder::RunBefore => return None,
    };
    turns.renew(holder, made(last, now, done));
    Some(came_to)
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
            self.takes.renew(holder, made(turn, now, Done { tokens: granted, bucket }));
        }
        (granted, bucket)
    }

    /// Drops what no longer counts.
    fn drop_ended(&mut self, now: i64, span: SpanNow) {
        self.tokens(span).drop_ended(span, now);
        // A holder keeps its ended leases until the last one ends: if the clock goes back, they count again.
        self.holders.retain(|_, leases| leases.range(now + 1..).next().is_some());
        self.takes.drop_ended(now);
        self.returns.drop_ended(now);
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
