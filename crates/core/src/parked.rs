//! Intents that wait for shards that are away, while what is behind them in their partition is decided.
//!
//! They may be millions, so they are not listed: a [`Span`] of offsets says what those that wait in it have in common (the
//! shard of their user, the class), and all others in it are done. That is what is committed beside the offset, as its
//! metadata, in few bytes: whoever reads on knows what is still to be decided, exactly.
//!
//! invariant: what a span says of an intent depends on its bytes alone, and on no policy or clock of a later time.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    class::ClassNames,
    policy::{Bypass, Counts, OnUnavailable, Policy, Unavailable},
    shard::UserHash,
};

#[cfg(test)]
mod tests;
mod text;

pub use text::{ParkedError, ROOM_BYTES};

/// By which rules intents wait: those of the policy when they were read, and how many shards there were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    shards: u16,
    bypass: Vec<Bypass>,
    on_unavailable: Vec<OnUnavailable>,
}

impl Terms {
    /// What waits by a policy: intents of classes with [`Unavailable::Wait`].
    #[must_use]
    pub fn of(policy: &Policy, shards: u16) -> Self {
        let mut terms = Self { on_unavailable: policy.on_unavailable.clone(), ..Self::of_all(policy, shards) };
        // What does not wait is done, whichever way it went.
        let done = terms.on_unavailable.iter_mut().filter(|rule| rule.action != Unavailable::Wait);
        done.for_each(|rule| rule.action = Unavailable::Suppress);
        terms
    }

    /// Everything that a history is needed for waits, whatever the policy says of its class.
    #[must_use]
    pub fn of_all(policy: &Policy, shards: u16) -> Self {
        let mut bypass = policy.bypass.clone();
        bypass.iter_mut().filter(|rule| rule.counts != Counts::No).for_each(|rule| rule.counts = Counts::Yes);
        Self { shards, bypass, on_unavailable: Vec::new() }
    }

    /// How many shards there were.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.shards
    }

    /// Whether an intent of this class waits where its shard is away.
    #[must_use]
    pub fn waits(&self, class: &ClassNames<'_>) -> bool {
        let bypass = self.bypass.iter().find(|rule| rule.matches(class));
        let unavailable = self.on_unavailable.iter().find(|rule| rule.filter.matches(class.channel, class.category));
        bypass.is_none_or(|rule| rule.counts != Counts::No)
            && unavailable.is_none_or(|rule| rule.action == Unavailable::Wait)
    }
}

/// What intents that wait have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// By which rules.
    pub terms: Arc<Terms>,
    /// The shards that are away.
    pub away: Arc<BTreeSet<u16>>,
}

impl Condition {
    /// Whether an intent of this user and class is one of them.
    #[must_use]
    pub fn holds(&self, user: UserHash, class: &ClassNames<'_>) -> bool {
        self.away.contains(&user.shard(self.terms.shards)) && self.terms.waits(class)
    }
}

/// Offsets of a partition, from the first up to before the second, of which all are done but those that meet all conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The first offset.
    pub from: i64,
    /// The offset behind the last.
    pub to: i64,
    /// What those that are not done have in common; never empty.
    conditions: Vec<Condition>,
}

impl Span {
    /// Whether an intent in it, of this user and class, is not done.
    fn has(&self, user: UserHash, class: &ClassNames<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(user, class))
    }

    /// The shards, of so many, that its intents wait for; `None` where no condition speaks of so many shards.
    fn shards(&self, shards: u16) -> Option<BTreeSet<u16>> {
        let mut as_many = self.conditions.iter().filter(|condition| condition.terms.shards == shards);
        let first = as_many.next()?;
        Some(as_many.fold((*first.away).clone(), |all, condition| &all & &*condition.away))
    }

    /// The part of it that is still not done after it was read again and these waited; `None` where none can be.
    fn narrowed(mut self, condition: &Condition) -> Option<Self> {
        match self.conditions.iter_mut().find(|known| known.terms == condition.terms) {
            Some(known) => known.away = Arc::new(&*known.away & &*condition.away),
            None => self.conditions.push(condition.clone()),
        }
        self.conditions.iter().all(|condition| !condition.away.is_empty()).then_some(self)
    }
}

/// What of a partition waits, and from where on nothing was read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parked {
    /// In the order of offsets, apart from each other, all before `next`.
    spans: Vec<Span>,
    next: i64,
    /// The shards of which something in the last span was decided; `None` where that is not known.
    decided: Option<BTreeSet<u16>>,
}

impl Parked {
    /// Nothing waits, and nothing was read from this offset on.
    #[must_use]
    pub const fn nothing(next: i64) -> Self {
        Self { spans: Vec::new(), next, decided: None }
    }

    /// The offset from which on nothing was read.
    #[must_use]
    pub const fn next(&self) -> i64 {
        self.next
    }

    /// The first offset that may be one that waits.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        self.spans.first().map(|span| span.from)
    }

    /// From an offset on, the first that may be one that waits, or was not read.
    #[must_use]
    pub fn next_open(&self, from: i64) -> i64 {
        let behind = self.spans.partition_point(|span| span.to <= from);
        self.spans.get(behind).map_or(self.next, |span| span.from).max(from)
    }

    /// The spans, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether an intent at this offset, of this user and class, is still to be decided.
    #[must_use]
    pub fn is_open(&self, offset: i64, user: UserHash, class: &ClassNames<'_>) -> bool {
        if offset >= self.next {
            return true;
        }
        let behind = self.spans.partition_point(|span| span.to <= offset);
        self.spans.get(behind).is_some_and(|span| span.from <= offset && span.has(user, class))
    }

    /// The shards that intents before this offset wait for, where there are so many shards; `None`: some wait for shards
    /// that were counted in another way.
    #[must_use]
    pub fn awaited(&self, before: i64, shards: u16) -> Option<BTreeSet<u16>> {
        let mut all = BTreeSet::new();
        for span in self.spans.iter().filter(|span| span.from < before) {
            all.extend(span.shards(shards)?);
        }
        Some(all)
    }

    /// Offsets from the first up to before the second were read, and of what was open there, all was decided but what
    /// meets the condition. `decided` are the shards of what was.
    pub fn read(&mut self, (from, to): (i64, i64), waits: Option<&Condition>, decided: &BTreeSet<u16>) {
        let fresh = (from.max(self.next), to);
        if self.spans.last().is_some_and(|last| from < last.to) {
            self.decided = None;
        }
        let mut spans = Vec::with_capacity(self.spans.len() + 2);
        for span in self.spans.drain(..) {
            let part = |from: i64, to: i64| (from < to).then(|| Span { from, to, conditions: span.conditions.clone() });
            spans.extend(part(span.from, span.to.min(from)));
            let again = part(span.from.max(from), span.to.min(to));
            spans.extend(again.and_then(|again| again.narrowed(waits?)));
            spans.extend(part(span.from.max(to), span.to));
        }
        self.spans = spans;
        self.next = self.next.max(to);
        if let Some(condition) = waits.filter(|_| fresh.0 < fresh.1) {
            self.park(fresh, condition, decided);
        }
        self.spans.dedup_by(|span, before| {
            let joins = before.to == span.from && before.conditions == span.conditions;
            if joins {
                before.to = span.to;
            }
            joins
        });
    }

    /// Adds a span that was read for the first time. Shards are noticed one after the other: as long as nothing of a shard
    /// was decided in the last span, it may as well be said to have been away in it.
    fn park(&mut self, (from, to): (i64, i64), condition: &Condition, decided: &BTreeSet<u16>) {
        let last = self.spans.last_mut().filter(|last| last.to == from);
        if let Some(last) = last
            && last.conditions.as_slice() == std::slice::from_ref(condition)
        {
            last.to = to;
            self.decided.iter_mut().for_each(|before| before.extend(decided));
            return;
        }
        let last = self.spans.last_mut().filter(|last| last.to == from);
        if let (Some(last), Some(before)) = (last, &mut self.decided)
            && let [known] = last.conditions.as_mut_slice()
            && known.terms == condition.terms
            && condition.away.difference(&known.away).all(|shard| !before.contains(shard))
            && known.away.difference(&condition.away).all(|shard| !decided.contains(shard))
        {
            known.away = Arc::new(&*known.away | &*condition.away);
            last.to = to;
            before.extend(decided);
            return;
        }
        self.spans.push(Span { from, to, conditions: vec![condition.clone()] });
        self.decided = Some(decided.clone());
    }
}
