//! A budget in memory: the reference that `lua/take.lua` and `lua/restore_budget.lua` must equal.

use super::{Account, BudgetTokens, CountId, OwedTokens, TakeAnswer, TakeTurn};
use crate::{
    basis::time::Time,
    limit::{
        budget::{BudgetId, SpanNow},
        share::{Member, MemberRecords, Reference, TurnNumber, TurnOrder},
    },
};

/// How long a turn is known after it was made last, in milliseconds: whoever has no answer repeats it far more often.
const TURN_KEPT_MS: i64 = 3_600_000;

/// What was granted of one budget, and to whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBook {
    /// Since when its tokens are counted, in ms since 1970; `None`: since the first turn, which is yet to come. A lost budget that no
    /// rebuild has written looks like a new one, unless its campaign is unknown.
    since: Option<i64>,
    /// The tokens of rolling windows, in the buckets that their leases end in; of periods; and in total.
    accounts: [Account; 3],
    /// Each holder's last turn, which holds what that was granted.
    holders: MemberRecords<OnLease>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnLease {
    /// The bucket of its last grant.
    bucket: i64,
    /// When its last lease ends. From then on it is no holder.
    ends: i64,
    /// What it held by its last turn, with what that was granted.
    tokens: u64,
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
        let (order, last) = (self.holders.order(member, number, now), self.holders.get(member, now).copied());
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
        self.answer(turn, (0, turn.span.bucket(now + turn.lease_ms)), now)
    }

    /// Counts the budget anew at a moment: it holds these tokens, and no leases. No two counts of it begin at once.
    pub fn recount(&mut self, now: Time, span: SpanNow, tokens: &Account) {
        let now = now.millis();
        *self = Self { since: Some(self.since.map_or(now, |before| now.max(before + 1))), ..Self::default() };
        self.accounts[kind(span)].clone_from(tokens);
    }

    fn answer(&self, turn: &TakeTurn, (granted, bucket): (u64, i64), now: i64) -> TakeAnswer {
        let TakeTurn { span, limit, least, .. } = *turn;
        let account = &self.accounts[kind(span)];
        let (used, free_in_ms) = (account.used(span, now), account.free_in_ms(span, now, limit, least));
        let holders = self.holders.all().filter(|(_, holder)| holder.more.ends > now);
        let leased: u64 = holders.map(|(_, holder)| holder.more.tokens).sum();
        let since = self.since.unwrap_or(now);
        let (counted_for_ms, count_id) = ((now - since).max(0), CountId(since));
        TakeAnswer { granted, used, leased: leased.min(used), bucket, free_in_ms, counted_for_ms, count_id }
    }

    /// A turn that was not made before: takes back, has counted what is owed, and grants. Gives how many, and what the holder has.
    fn take(&mut self, holder: &str, turn: &TakeTurn, (order, now): (TurnOrder, i64)) -> (u64, OnLease) {
        let TakeTurn { span, limit, want, lease_ms, held, .. } = *turn;
        let since = *self.since.get_or_insert(now);
        let back = turn.back.iter().filter(|given| order == TurnOrder::New && given.count_id == CountId(since));
        for given in back {
            let place = if given.span == SpanNow::Total { 0 } else { given.bucket };
            self.accounts[kind(given.span)].take_back(place, given.tokens);
        }
        let account = &mut self.accounts[kind(span)];
        if want > 0 {
            account.drop_ended(span, now);
        }
        let counted_for_ms = (now - since).max(0);
        for OwedTokens { tokens, .. } in turn.owed.iter().filter(|owed| counted_for_ms < owed.ago_ms) {
            let left = limit.saturating_sub(account.used(span, now));
            account.add(span.bucket(now), left.min(*tokens));
        }
        self.holders.drop_ended(now);
        let granted = if want > 0 { self.grant_of(holder, turn, now) } else { 0 };
        let bucket = span.bucket(now + lease_ms);
        self.accounts[kind(span)].add(bucket, granted);
        let ends = self.holders.get(holder, now).map_or(0, |own| own.more.ends);
        let ends = match (want, held) {
            (0, 0) => 0,
            (0, _) => ends,
            (1.., _) => ends.max(now + lease_ms),
        };
        (granted, OnLease { bucket, ends, tokens: held + granted })
    }

    fn grant_of(&self, holder: &str, turn: &TakeTurn, now: i64) -> u64 {
        let TakeTurn { span, limit, need, want, unit, least, .. } = *turn;
        let left = limit.saturating_sub(self.accounts[kind(span)].used(span, now));
        let others = self.holders.others(holder).filter(|(_, other)| other.more.ends > now).count() as u64;
        let granted = match want.min(left / (2 * (others + 1))) {
            share if share < need => need.min(left),
            share => share,
        };
        let granted = granted - granted % unit;
        if granted < least { 0 } else { granted }
    }
}

/// The place of the account for a window of this kind.
fn kind(span: SpanNow) -> usize {
    match span {
        SpanNow::Rolling { .. } => 0,
        SpanNow::Period { .. } => 1,
        SpanNow::Total => 2,
    }
}
