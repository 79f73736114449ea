//! The permits of routes in memory: the reference that `lua/permit.lua` must equal.

use std::collections::BTreeMap;

use super::{MOST, PermitGrant, PermitTurn, RouteKey, RoutePermits, kept_rates, registry::Registry};
use crate::{
    basis::time::Time,
    limit::{
        route::pace::KeptRates,
        share::{Member, MemberRecords, Reference, TurnNumber, TurnOrder, Wanting, fair_share, grow},
    },
};

/// How long a route is kept without a turn, in milliseconds: 7 days.
const KEEP_MS: i64 = 7 * 86_400_000;
/// The highest rate of each such time is kept, in milliseconds, and of so many before the one of now: of an hour at the least.
const BEST_EVERY_MS: i64 = 360_000;
const BEST_KEPT: i64 = 10;
/// The bucket counts in parts of a permit, so that each millisecond adds whole ones.
const PARTS: u64 = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteBook {
    /// What is registered of its service; `None`: it has none.
    pub service: Option<Registry>,
    members: MemberRecords<Approving>,
    bucket: Option<PermitBucket>,
    rates: Rates,
    /// When it expires, in milliseconds since 1970.
    ends: i64,
}

/// What is recorded of a member beside its permits: its recent approvals, and the factor of its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Approving {
    recent: u64,
    slow: u64,
    /// The parts of the bucket that it is due, and one permit's more: a part of one it may have in advance.
    due: u64,
    /// What it wants less what it returned, when it had permits last, in parts: who returns all takes nothing from others.
    takes: u64,
}

/// What is kept of a delivery, in thousandths per second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rates {
    delivery: u64,
    /// 0: not known.
    drain: u64,
    /// The highest rates that were measured, by when.
    best: BTreeMap<i64, u64>,
}

/// A bucket of this rate, at a turn that returned so much; in parts.
struct Filled {
    rate: u64,
    parts: u64,
    returned: u64,
}

/// At most one second's permits, and a part of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PermitBucket {
    parts: u64,
    /// As of then, in milliseconds since 1970.
    at: i64,
}

impl Reference<RoutePermits> for RouteBook {
    fn new(key: &RouteKey) -> Self {
        Self { service: key.service.as_ref().map(|_| Registry::default()), ..Self::default() }
    }

    fn turn(&mut self, instance: &str, number: TurnNumber, turn: &PermitTurn, now: Time) -> Option<PermitGrant> {
        let now_ms = now.millis();
        if now_ms >= self.ends {
            *self = Self { service: self.service.take(), ..Self::default() };
        }
        let order = self.members.order(instance, number, now_ms);
        if matches!(order, TurnOrder::Behind | TurnOrder::RunBefore) {
            return None;
        }
        self.ends = now_ms + KEEP_MS;
        self.members.drop_ended(now_ms);
        let is_same = order == TurnOrder::Same;
        let (mut others_held, mut others_recent, mut least_slow, mut is_one_without) = (0_u64, 0_u64, turn.slow, false);
        for (_, Member { held, wanted, more: Approving { recent, slow, .. }, .. }) in self.members.others(instance) {
            (others_held, others_recent) = (others_held + held, others_recent + recent);
            least_slow = least_slow.min(*slow);
            is_one_without |= *wanted > 0 && *held == 0;
        }

        let registered_per_s = self.service.as_ref().map(|service| service.total(now).per_s);
        if let Some(service) = &mut self.service
            && !is_same
        {
            service.note_times(turn.took);
        }
        let rate = [turn.rate, registered_per_s.map(|registered| registered.max(1))].into_iter().flatten().min();
        let rate = rate.map(|rate| (rate.saturating_mul(least_slow) / 1_000).max(1));
        let before = self.members.get(instance, now_ms).copied();
        let unused = if is_same || before.is_none() { 0 } else { turn.unused };
        let bucket = rate.map(|rate| self.fill(rate, unused, now_ms));
        let own = Wanting { want: turn.want.min(MOST), name: instance };
        let takes = Wanting { want: own.want.saturating_sub(turn.unused) * PARTS, ..own };
        let more = Approving { recent: turn.recent, slow: turn.slow, due: PARTS, takes: takes.want };
        let ends = now_ms + i64::try_from(turn.lease.as_millis()).unwrap_or(0);
        let (tokens, due) = bucket.as_ref().map_or((MOST, PARTS), |of| self.tokens(of, takes, ends, now_ms));
        // What all members may hold together.
        let room = turn.room_or_most().saturating_sub(turn.recent).saturating_sub(others_recent);
        let part = fair_share(room, own, self.members.wants(instance), now_ms).max(1);
        let (granted, more) = match before {
            Some(before) if is_same => (before.held, Approving { due, takes: before.more.takes, ..more }),
            // What it does not use may be all that another one, which knows of less room, could have.
            Some(before) => {
                let most = if turn.unused > 0 && is_one_without { before.held / 2 } else { u64::MAX };
                let granted = own.want.min(tokens).min(grow(room, others_held, 0, part)).min(most);
                let takes = if before.held > 0 { takes.want } else { before.more.takes };
                (granted, Approving { due: due.saturating_sub(granted * PARTS).min(2 * PARTS), takes, ..more })
            }
            None => (0, more),
        };

        let rates = self.rates.turn(turn, now_ms);
        match bucket {
            Some(Filled { parts, .. }) if !is_same => {
                self.bucket = Some(PermitBucket { parts: parts - granted * PARTS, at: now_ms });
            }
            Some(_) => {}
            None => self.bucket = None,
        }
        self.members.renew(instance, Member { last: number, ends, held: granted, wanted: own.want, more });
        Some(PermitGrant {
            permits: granted,
            held_by_others: others_held + others_recent,
            members: self.members.count(),
            registered_per_s,
            timeout_ms: self.service.as_ref().and_then(|service| service.shortest_timeout_ms(now)),
            processing_ms: self.service.as_ref().and_then(Registry::processing_ms),
            slow: least_slow,
            rates,
        })
    }
}

impl RouteBook {
    fn fill(&self, rate: u64, unused: u64, now_ms: i64) -> Filled {
        let PermitBucket { parts, at } = self.bucket.unwrap_or(PermitBucket { parts: 0, at: now_ms });
        let (passed, returned) = (u64::try_from(now_ms - at).unwrap_or(0), unused.saturating_mul(PARTS));
        let parts = parts.saturating_add(rate.saturating_mul(passed)).saturating_add(returned);
        Filled { rate, parts: parts.min(rate.saturating_mul(PARTS) + PARTS - 1), returned }
    }

    /// What a member that takes so much may have of the bucket, and what it is due, in parts. All its leases are as long.
    fn tokens(&self, &Filled { rate, parts, returned }: &Filled, own: Wanting<'_>, ends: i64, now: i64) -> (u64, u64) {
        let Some(before) = self.members.get(own.name, now) else { return (0, PARTS) };
        let came_in = rate.saturating_mul((ends - before.ends).clamp(0, 1_000).unsigned_abs());
        let taking = self.members.others(own.name).map(|(name, other)| Wanting { want: other.more.takes, name });
        let due = before.more.due + returned + fair_share(came_in, own, taking, now);
        let for_others = if self.members.count() > 1 { rate * PARTS * 3 / 4 + PARTS } else { 0 };
        let tokens = parts.saturating_sub(for_others).max(due.saturating_sub(1)).min(parts) / PARTS;
        let is_short = |of: &Member<Approving>| of.wanted > 0 && of.held == 0 && of.more.due >= 2 * PARTS;
        let is_another_short = self.members.others(own.name).any(|(_, other)| is_short(other));
        let left = u64::from(is_another_short && before.more.due < 2 * PARTS);
        (tokens.min((parts / PARTS).saturating_sub(left)), due)
    }
}

impl Rates {
    /// Keeps what an instance knows; gives what is kept.
    fn turn(&mut self, turn: &PermitTurn, now_ms: i64) -> KeptRates {
        if self.delivery != turn.delivery {
            *self = Self { delivery: turn.delivery, ..Self::default() };
        }
        let ([drain, measured], place) = (turn.rate_parts(), now_ms / BEST_EVERY_MS);
        if drain > 0 {
            self.drain = drain;
        }
        self.best.retain(|at, _| (place - BEST_KEPT..=place).contains(at));
        if measured > 0 {
            let most = self.best.entry(place).or_default();
            *most = measured.max(*most);
        }
        kept_rates([self.drain, self.best.values().copied().max().unwrap_or(0)])
    }
}
