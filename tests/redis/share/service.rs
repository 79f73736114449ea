//! Services: `lua/register.lua` and `lua/share.lua`.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use weir_core::{
    basis::time::Time,
    limit::share::{Reference as _, TurnNumber},
    ports::{Share as _, StoreError},
};
use weir_oracle::service::{
    End, Holder, INTERVALS, LEASE_MS, Registered, Registration, ServiceBook, ServiceName, ServiceSeen, Services as _,
    ShareReply, ShareTurn, Use,
};
use weir_redis::RedisServices;

use super::{Place, Reached, Scripted, next_turn, two::Shared, unless_overtaken};
use crate::services::{instance, name, services};

const HOLDERS: [&str; 6] = ["a", "b", "c1", "0d", "e", "zz"];
const INSTANCES: [&str; 5] = ["i", "hedwig-0", "hedwig-1", "A.b_c", "9"];
const SERVICE: &str = "email";

#[derive(Debug)]
pub(super) enum Step {
    Register(ServiceName, Registration),
    Deregister(ServiceName),
    Look,
    Turn(TurnNumber, ShareTurn),
}

#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Registered(Registered),
    Removed(bool),
    Looked(Option<ServiceSeen>),
    /// `None`: a later turn was before it.
    Shared(Option<ShareReply>),
}

#[derive(Debug, Default)]
struct Kept {
    turn: TurnNumber,
    last: ShareReply,
}

pub(super) struct Shares {
    place: Arc<Place>,
    clients: [RedisServices; HOLDERS.len()],
    book: ServiceBook,
    kept: [Kept; HOLDERS.len()],
}

impl Shares {
    fn turn(&mut self, rng: &mut Rng, member: usize) -> Step {
        let Kept { turn, last } = &mut self.kept[member];
        let held = |rng: &mut Rng, given: u64| if rng.u8(..30) == 0 { rng.u64(..300) } else { rng.u64(..=given) };
        let ends = (0..rng.usize(..4)).map(|_| {
            let took_ms = rng.bool().then(|| rng.u64(..5_000));
            (Holder::from(*rng.choice(&HOLDERS).unwrap()), End { number: rng.u64(..), took_ms })
        });
        let ends = ends.collect();
        let number = next_turn(rng, turn);
        let turn = ShareTurn {
            rate: Use { held: held(rng, last.per_s), wanted: rng.u64(..150) },
            concurrency: Use { held: held(rng, last.concurrency), wanted: rng.u64(..30) },
            took: if rng.bool() { (0, 0) } else { (rng.u64(1..50), rng.u64(..100_000)) },
            taken_bytes: if rng.u8(..5) == 0 { rng.u64(..40) } else { last.ends.len() as u64 },
            ends,
        };
        Step::Turn(number, turn)
    }

    fn registered_at(&self, instance: &str, ahead_ms: u64) -> Time {
        let key = self.place.opened.keyspace.service_key(SERVICE);
        self.place.moment(&key, instance, 4, ahead_ms as i64)
    }

    /// The reply, and what the server's clock showed then.
    async fn call(&mut self, member: usize, step: &Step) -> Result<(Reply, Time), StoreError> {
        let (service, client, began) = (name(SERVICE), &mut self.clients[member], self.place.clock());
        Ok(match step {
            Step::Register(instance, registration) => {
                let reply = Reply::Registered(client.register(&service, instance, Some(registration)).await?);
                let lives_ms = registration.interval_ms * INTERVALS.unsigned_abs();
                (reply, self.registered_at(instance.as_str(), lives_ms))
            }
            // One that is registered was so before; one that is not will not be so after.
            Step::Deregister(instance) => match client.register(&service, instance, None).await?.taken {
                true => (Reply::Removed(true), began),
                false => (Reply::Removed(false), self.place.clock()),
            },
            Step::Look => match client.look(&service).await? {
                Some(seen) => {
                    let now = seen.now;
                    (Reply::Looked(Some(seen)), now)
                }
                None => (Reply::Looked(None), self.place.clock()),
            },
            Step::Turn(number, turn) => match unless_overtaken(client.turn(&service, *number, turn).await)? {
                Some(reply) => (Reply::Shared(Some(reply)), self.taken_at(member, step)),
                // That one counts still, so it counted before.
                None => (Reply::Shared(None), began),
            },
        })
    }
}

fn registration(rng: &mut Rng) -> Registration {
    Registration {
        capacity_per_s: rng.u64(1..200),
        concurrency: rng.u64(1..40),
        timeout_ms: *rng.choice(&[5, 500, 3_000]).unwrap(),
        network_ms: rng.u64(..100),
        interval_ms: *rng.choice(&[5, 100, 3_000]).unwrap(),
    }
}

impl Scripted for Shares {
    type Step = Step;
    type Reply = Reply;
    const MEMBERS: usize = HOLDERS.len();
    const LEAST: usize = 3;
    /// Longer than a lease.
    const PHASE: Duration = Duration::from_millis(3_500);
    /// Shorter than ends wait for their holder: when they are forgotten, the book does not say.
    const AHEAD_S: &'static [i64] = &[2, 0];

    async fn new(place: Arc<Place>) -> Self {
        let clients = HOLDERS.map(|holder| services(&place.options, &place.opened, holder));
        let (book, kept) = Default::default();
        Self { place, clients, book, kept }
    }

    fn draw(&mut self, rng: &mut Rng, member: usize) -> Vec<Step> {
        let instance = name(INSTANCES[rng.usize(..INSTANCES.len())]);
        match rng.u8(..17) {
            0..3 => vec![Step::Register(instance, registration(rng))],
            3..5 => {
                // When one is removed is known to some milliseconds only, and what ends in these is dropped by one side alone. A
                // registration drops it on both: before the clock goes back, and it would count again.
                let other = name(INSTANCES[rng.usize(..INSTANCES.len())]);
                let short = Registration { interval_ms: 5, ..registration(rng) };
                vec![Step::Deregister(instance), Step::Register(other, short)]
            }
            5 => vec![Step::Look],
            _ => vec![self.turn(rng, member)],
        }
    }

    async fn on_server(&mut self, member: usize, steps: &[Step]) -> Result<Vec<(Reply, Time)>, StoreError> {
        let mut replies = Vec::new();
        for step in steps {
            replies.push(self.call(member, step).await?);
        }
        Ok(replies)
    }

    fn on_reference(&mut self, member: usize, step: &Step, now: Time) -> Reply {
        match step {
            Step::Register(instance, registration) => {
                Reply::Registered(self.book.register(instance, Some(registration), now))
            }
            Step::Deregister(instance) => Reply::Removed(self.book.register(instance, None, now).taken),
            Step::Look => Reply::Looked(self.book.look(now)),
            Step::Turn(number, turn) => Reply::Shared(self.book.turn(HOLDERS[member], *number, turn, now)),
        }
    }

    fn note(&mut self, member: usize, _: &Step, reply: &Reply, is_heard: bool) -> Reached {
        if let (true, Reply::Shared(Some(reply))) = (is_heard, reply) {
            self.kept[member].last = reply.clone();
        }
        let shared = |is: fn(&ShareReply) -> bool| matches!(reply, Reply::Shared(Some(reply)) if is(reply));
        vec![
            ("registered", matches!(reply, Reply::Registered(_))),
            ("removed", *reply == Reply::Removed(true)),
            ("unregistered", *reply == Reply::Looked(None)),
            ("stale", *reply == Reply::Shared(None)),
            ("granted", shared(|reply| reply.per_s > 0 && reply.concurrency > 0)),
            ("denied", shared(|reply| reply.per_s == 0 && reply.total.per_s > 0)),
            ("starting", shared(|reply| reply.starts_in_ms > 0)),
            ("started", shared(|reply| reply.starts_in_ms == 0 && reply.per_s > 0)),
            ("silent", shared(|reply| reply.members == 1)),
            ("ends", shared(|reply| !reply.ends.is_empty())),
            ("took", shared(|reply| reply.processing_us > 0)),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        let keyspace = &self.place.opened.keyspace;
        let (slot, registry) = (keyspace.slot(keyspace.limit_shard(SERVICE)), keyspace.service_key(SERVICE));
        ["", ":members", ":ends"].map(|part| (slot, format!("{registry}{part}"))).to_vec()
    }

    fn forget(&mut self) {
        self.book = ServiceBook::default();
    }
}

impl Shared for Shares {
    const ALL: u64 = 500;
    const READS: usize = 3;

    fn offer(&self) -> Vec<Step> {
        vec![Step::Register(name("i"), instance(Self::ALL, 60_000))]
    }

    /// It also hands an end on.
    fn want_all(&mut self, member: usize) -> Step {
        let Kept { turn, last } = &mut self.kept[member];
        turn.number += 1;
        let asked = ShareTurn {
            rate: Use { held: last.per_s, wanted: 1_000 },
            concurrency: Use { held: last.concurrency, wanted: 100 },
            taken_bytes: last.ends.len() as u64,
            ends: vec![(HOLDERS[(member + 1) % 2].into(), End { number: turn.number, took_ms: None })],
            ..ShareTurn::default()
        };
        Step::Turn(*turn, asked)
    }

    fn held(reply: &Reply) -> u64 {
        if let Reply::Shared(Some(reply)) = reply { reply.per_s } else { 0 }
    }

    fn taken_at(&self, member: usize, _: &Step) -> Time {
        let members = format!("{}:members", self.place.opened.keyspace.service_key(SERVICE));
        self.place.moment(&members, HOLDERS[member], 11, LEASE_MS)
    }
}
