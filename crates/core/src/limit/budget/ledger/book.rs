//! A budget in memory: the reference that `lua/take.lua` and `lua/restore_budget.lua` must equal.

use std::collections::BTreeMap;

use super::{Account, BudgetTokens, CountId, Grain, OwedTokens, TakeAnswer, TakeTurn, account::rounded_up};
use crate::{
    basis::time::Time,
    limit::{
        budget::{BudgetId, SpanNow},
        share::{Member, MemberRecords, Reference, TurnNumber, TurnOrder},
    },
};

/// The parts of a lease that its end is rounded up to, so that a holder has few leases to be remembered.
const LEASE_PARTS: i64 = 4;
/// How long a turn is known after it was made last, in milliseconds: whoever has no answer repeats it far more often.
const TURN_KEPT_MS: i64 = 3_600_000;

/// What was granted of one budget, and to whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBook {
    /// Since when its tokens are counted, in ms since 1970; `None`: since the first turn, which is yet to come. A lost budget that no
    /// rebuild has written looks like a new one, unless its campaign is unknown.
    since: Option<i64>,
    /// The tokens of rolling windows, in the buckets that their leases end in.
    rolling: Account,
    periods: Account,
    total: Account,
    /// Each holder's last turn, which holds what that was granted.
    holders: MemberRecords<OnLease>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OnLease {
    /// The bucket of its last grant.
    bucket: i64,
    /// When leases end -> tokens.
    leases: BTreeMap<i64, u64>,
}

impl OnLease {
    /// Takes tokens out of its leases, those that end first. Who has none left is no holder until it takes again.
    fn release(&mut self, tokens: u64) {
        if self.leases.values().sum::<u64>() <= tokens {
            self.leases.clear();
        }
        let mut rest = tokens;
        for held in self.leases.values_mut() {
            let part = rest.min(*held);
            *held -= part;
            rest -= part;
        }
    }
}

impl Reference<BudgetTokens> for TokenBook {
    fn new(_: &BudgetId) -> Self {
        Self::default()
    }

    fn turn(&mut self, member: &str, number: TurnNumber, turn: &TakeTurn, now: Time) -> Option<TakeAnswer> {
        // Nothing comes back where nothing was granted: who wants none and owes none only looks.
        let begins_nothing = self.since.is_none() && turn.want == 0 && turn.owed.is_empty();
        if number.number == 0 || begins_nothing {
            return Some(self.look(turn, now));
        }
        let now = now.millis();
        let (order, last) = (self.holders.order(member, number, now), self.holders.get(member, now).cloned());
        let ends = now + TURN_KEPT_MS;
        let (grant, own) = match (order, last) {
            (TurnOrder::Behind, _) => return None,
            // It is known for as long again; nothing else changes.
            (TurnOrder::Same, Some(last)) => ((last.held, last.more.bucket), Member { ends, ..last }),
            (order, last) => {
                let (held, more) = self.take(member, turn, (order, now));
                let grant = (held, more.bucket);
                let own = match last.filter(|_| order == TurnOrder::RunBefore) {
                    Some(last) => Member { more: OnLease { bucket: last.more.bucket, ..more }, ..last },
                    None => Member { last: number, ends, held, wanted: turn.want, more },
                };
                (grant, own)
            }
        };
        self.holders.renew(member, own);
        Some(self.answer(turn, grant, now))
    }
}

impl TokenBook {
    /// Whether it grants nothing at a moment, where it is of a campaign, and the unknown ones are closed until then (`None`: for ever).
    #[must_use]
    pub fn is_unknown(&self, until: Option<Time>, now: Time) -> bool {
        self.since.is_none() && until.is_none_or(|until| now < until)
    }

    #[must_use]
    pub fn look(&self, turn: &TakeTurn, now: Time) -> TakeAnswer {
        let now = now.millis();
        self.answer(turn, (0, Grain::Bucket.place(turn.span, now + turn.lease_ms)), now)
    }

    /// Counts the budget anew at a moment: it holds these tokens, and no leases. No two counts of it begin at once.
    pub fn recount(&mut self, now: Time, span: SpanNow, tokens: &Account) {
        let now = now.millis();
        *self = Self { since: Some(self.since.map_or(now, |before| now.max(before + 1))), ..Self::default() };
        self.tokens(span).clone_from(tokens);
    }

    fn tokens(&mut self, span: SpanNow) -> &mut Account {
        match span {
            SpanNow::Rolling { .. } => &mut self.rolling,
            SpanNow::Period { .. } => &mut self.periods,
            SpanNow::Total => &mut self.total,
        }
    }

    fn account(&self, span: SpanNow) -> &Account {
        match span {
            SpanNow::Rolling { .. } => &self.rolling,
            SpanNow::Period { .. } => &self.periods,
            SpanNow::Total => &self.total,
        }
    }

    fn answer(&self, turn: &TakeTurn, (granted, bucket): (u64, i64), now: i64) -> TakeAnswer {
        let TakeTurn { span, limit, least, .. } = *turn;
        let account = self.account(span);
        let (used, free_in_ms) = (account.used(span, now), account.free_in_ms(span, now, limit, least));
        let leases = self.holders.all().flat_map(|(_, holder)| holder.more.leases.range(now + 1..));
        let leased: u64 = leases.map(|(_, tokens)| tokens).sum();
        let since = self.since.unwrap_or(now);
        let (counted_for_ms, count_id) = ((now - since).max(0), CountId(since));
        TakeAnswer { granted, used, leased: leased.min(used), bucket, free_in_ms, counted_for_ms, count_id }
    }

    /// A turn that was not made before: takes back, has counted what is owed, and grants. Gives how many, and what the holder has.
    fn take(&mut self, holder: &str, turn: &TakeTurn, (order, now): (TurnOrder, i64)) -> (u64, OnLease) {
        let TakeTurn { span, limit, want, lease_ms, .. } = *turn;
        let since = *self.since.get_or_insert(now);
        let mut own = self.holders.get(holder, now).map(|own| own.more.clone()).unwrap_or_default();
        own.leases.retain(|ends, _| *ends > now);
        if order == TurnOrder::New {
            for given in turn.back.iter().filter(|given| given.count_id == CountId(since)) {
                let place = if given.span == SpanNow::Total { 0 } else { given.bucket };
                let back = self.tokens(given.span).take_back(place, given.tokens);
                if back > 0 && given.is_on_lease {
                    own.release(back);
                }
            }
        }
        if want > 0 {
            self.tokens(span).drop_ended(span, now);
        }
        self.holders.drop_ended(now);
        let counted_for_ms = (now - since).max(0);
        for OwedTokens { tokens, .. } in turn.owed.iter().filter(|owed| counted_for_ms < owed.ago_ms) {
            let left = limit.saturating_sub(self.account(span).used(span, now));
            self.tokens(span).add(Grain::Bucket.place(span, now), left.min(*tokens));
        }
        own.bucket = Grain::Bucket.place(span, now + lease_ms);
        if want == 0 {
            return (0, own);
        }
        let granted = self.grant_of(holder, turn, now);
        self.tokens(span).add(own.bucket, granted);
        *own.leases.entry(rounded_up(now + lease_ms, lease_ms / LEASE_PARTS)).or_default() += granted;
        (granted, own)
    }

    fn grant_of(&self, holder: &str, turn: &TakeTurn, now: i64) -> u64 {
        let TakeTurn { span, limit, need, want, unit, least, .. } = *turn;
        let left = limit.saturating_sub(self.account(span).used(span, now));
        let is_holder = |(_, other): &(&str, &Member<OnLease>)| other.more.leases.range(now + 1..).next().is_some();
        let others = self.holders.others(holder).filter(is_holder).count() as u64;
        let granted = match want.min(left / (2 * (others + 1))) {
            share if share < need => need.min(left),
            share => share,
        };
        let granted = granted - granted % unit;
        if granted < least { 0 } else { granted }
    }
}
