//! The registry of one service and the shares of it: the reference that `lua/register.lua` and `lua/share.lua` must equal.
//!
//! Why the sum of shares in force is never more than the total: a member's record counts the largest share that can be in force from a
//! second before its turn until its next one. A share grows only into what all other records leave. It shrinks in the record one turn
//! after it did in force, when the member reports that. A member that takes no turn uses its share until the end of its lease, and its
//! record counts for a second longer, and for its admissions until the last one has timed out.

use std::collections::BTreeMap;

use weir_core::{
    basis::time::Time,
    limit::{
        route::permits::{RegisteredInstance, Registry},
        share::{Member, MemberRecords, Reference, TurnNumber, TurnOrder, Wanting, fair_share, grow},
    },
};

use super::{
    ENDS_BYTES, Holder, INTERVALS, LEASE_MS, MAX_INSTANCES, Registered, Registration, SECOND_MS, ServiceName,
    ServiceSeen, ServiceShares, ShareReply, ShareTurn, Use,
};

/// How long a service without instances is remembered, in milliseconds.
const KEEP_MS: i64 = 60_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceBook {
    registry: Registry,
    /// When that is forgotten, in ms since 1970.
    until: i64,
    members: MemberRecords<Shares>,
    ends: BTreeMap<Holder, String>,
}

/// What is recorded of an instance of weir beside the rate that counts, and the one that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shares {
    rate_until: i64,
    rate_given: u64,
    concurrency: Counted,
    lease_ends: i64,
}

/// What counts of a share, and until when; what is wanted, and what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    share: u64,
    wanted: u64,
    until: i64,
    given: u64,
}

impl Counted {
    fn at(self, now: i64) -> u64 {
        if self.until > now { self.share } else { 0 }
    }
}

fn rate_of(member: &Member<Shares>) -> Counted {
    let Shares { rate_until: until, rate_given: given, .. } = member.more;
    Counted { share: member.held, wanted: member.wanted, until, given }
}

const fn concurrency_of(member: &Member<Shares>) -> Counted {
    member.more.concurrency
}

impl Reference<ServiceShares> for ServiceBook {
    fn new(_: &ServiceName) -> Self {
        Self::default()
    }

    fn turn(&mut self, holder: &str, number: TurnNumber, turn: &ShareTurn, now: Time) -> Option<ShareReply> {
        let (at, now) = (now, now.millis());
        let order = self.members.order(holder, number, now);
        if matches!(order, TurnOrder::Behind | TurnOrder::RunBefore) {
            return None;
        }
        self.forget(now);
        self.members.drop_ended(now);
        self.ends.retain(|holder, _| self.members.has(holder));
        let before = self.members.get(holder, now).copied();
        let total = self.registry.total(at);
        let starts_in = self.registry.since.map_or(0, |since| (since.millis() + LEASE_MS + SECOND_MS - now).max(0));
        let share = |total: u64, used: Use, of: fn(&Member<Shares>) -> Counted| {
            if let (TurnOrder::Same, Some(before)) = (order, &before) {
                return (of(before).given, of(before).share);
            }
            let others = || self.members.others(holder);
            let counted: u64 = others().map(|(_, member)| of(member).at(now)).sum();
            let live = others().filter(|(_, member)| member.more.lease_ends > now);
            let wants = live.map(|(name, member)| Wanting { name, want: of(member).wanted });
            let part = fair_share(total, Wanting { name: holder, want: used.wanted }, wants, now);
            let held = match &before {
                Some(before) => used.held.min(of(before).at(now)),
                None if starts_in > 0 => used.held,
                None => 0,
            };
            // While others may hold shares that nobody knows of, nobody gets more than it has.
            let given = grow(if starts_in > 0 { 0 } else { total }, counted, held, part);
            (given, given.max(held))
        };
        let (per_s, rate) = share(total.per_s, turn.rate, rate_of);
        let (concurrency, busy) = share(total.concurrency, turn.concurrency, concurrency_of);
        let lease_ends = now + LEASE_MS;
        let rate_until = lease_ends + SECOND_MS;
        let busy_until = before.map_or(0, |before| before.more.concurrency.until);
        let until = busy_until.max(lease_ends + total.timeout_ms as i64);
        let counted = Counted { share: busy, wanted: turn.concurrency.wanted, until, given: concurrency };
        let member = Member {
            last: number,
            ends: rate_until.max(until),
            held: rate,
            wanted: turn.rate.wanted,
            more: Shares { rate_until, rate_given: per_s, concurrency: counted, lease_ends },
        };
        self.members.renew(holder, member);
        if order != TurnOrder::Same {
            self.registry.note_times(turn.took);
            self.hand_on(holder, turn);
        }
        Some(ShareReply {
            per_s,
            concurrency,
            total,
            members: self.live(now),
            starts_in_ms: starts_in as u64,
            processing_us: self.registry.took_us,
            ends: self.ends.get(holder).cloned().unwrap_or_default(),
        })
    }
}

impl ServiceBook {
    /// Registers or renews an instance; without a registration, removes it.
    pub fn register(&mut self, instance: &ServiceName, registration: Option<&Registration>, now: Time) -> Registered {
        self.forget(now.millis());
        let Registry { instances, since, .. } = &mut self.registry;
        instances.retain(|_, one| one.ends > now);
        let before = instances.remove(instance.as_str());
        let taken = match registration {
            None => before.is_some(),
            Some(_) if instances.len() as u64 >= MAX_INSTANCES => false,
            Some(&Registration { capacity_per_s, concurrency, timeout_ms, network_ms, interval_ms }) => {
                let ends = now.plus(interval_ms as i64 * INTERVALS);
                let one = RegisteredInstance { capacity_per_s, concurrency, timeout_ms, network_ms, ends };
                instances.insert(instance.as_str().to_owned(), one);
                since.get_or_insert(now);
                self.until = self.until.max(ends.millis() + KEEP_MS);
                true
            }
        };
        Registered { taken, total: self.registry.total(now) }
    }

    /// How the service stands; `None` where it has no live instance.
    pub fn look(&self, now: Time) -> Option<ServiceSeen> {
        let (at, now) = (now, now.millis());
        let instances: Vec<_> = self.registry.live(at).map(|(name, one)| (name.clone(), *one)).collect();
        let counted =
            |of: fn(&Member<Shares>) -> Counted| self.members.all().map(|(_, member)| of(member).at(now)).sum();
        (!instances.is_empty()).then(|| ServiceSeen {
            instances,
            total: self.registry.total(at),
            given: (counted(rate_of), counted(concurrency_of)),
            members: self.live(now),
            processing_us: self.registry.took_us,
            now: at,
        })
    }

    fn live(&self, now: i64) -> u64 {
        self.members.all().filter(|(_, member)| member.more.lease_ends > now).count() as u64
    }

    /// Forgets a service that has had no instance for long.
    fn forget(&mut self, now: i64) {
        if self.until <= now {
            self.registry = Registry::default();
        }
    }

    /// Passes ended admissions on to their holders, and forgets those of this holder that it has acknowledged.
    fn hand_on(&mut self, holder: &str, turn: &ShareTurn) {
        for (to, ends) in turn.ends_by_holder() {
            if self.members.has(&to) {
                let waiting = self.ends.entry(to).or_default();
                if waiting.len() + ends.len() <= ENDS_BYTES {
                    waiting.push_str(&ends);
                }
            }
        }
        // Where the ends were lost and are others now, they are handed out again: an end that comes twice has no effect.
        let taken = turn.taken_bytes as usize;
        if let Some(own) = self.ends.get_mut(holder)
            && taken > 0
            && own.as_bytes().get(taken - 1) == Some(&b' ')
        {
            own.drain(..taken);
        }
    }
}
