//! The script and the reference take turns alike: random turns of several instances, each repeated on the reference at the time
//! that the server's clock showed.

use fastrand::Rng;
use testkit::redis::{RedisCluster, RedisServer};
use weir_core::{
    activity::{ActivityHash, Minute},
    activity_log::{ActiveIn, Book, Cursor, SyncReply, SyncRequest},
    ports::ActivityLog,
    time::Time,
};
use weir_redis::Keyspace;

use super::log;
use crate::redis_support::{opened, options};

const STEPS: usize = 3_000;
const INSTANCES: [&str; 5] = ["weir-0", "weir-1", "", "a:b\r\n c", "é\u{1}10:99"];
/// How long entries stay behind the window.
const SLACK_MS: i64 = 120_000;
const WINDOWS_MS: [i64; 3] = [60_000, 61_000, 600_000];

/// What an instance keeps between turns.
#[derive(Debug, Clone, Default)]
struct Kept {
    cursor: Cursor,
    /// The cursor in the book: a server may give an entry an id that is ahead of the time that the script sees.
    in_book: Cursor,
    held: u64,
}

/// What was seen, to know that the steps reach everything.
#[derive(Debug, Default)]
struct Seen {
    read: u32,
    more: u32,
    lost: u32,
    granted: u32,
    denied: u32,
    left: u32,
    ended: u32,
}

/// A turn's own part.
struct Step {
    active: Vec<ActiveIn>,
    window_ms: i64,
    member_for_ms: i64,
    room: Option<u64>,
}

impl Step {
    fn draw(rng: &mut Rng, most: u64) -> Self {
        // Now and then so many that a turn cannot read them all.
        let most_users = if rng.u8(..100) == 0 { 60_000 } else { 40 };
        let active = |rng: &mut Rng| {
            let users: Vec<ActivityHash> = (0..rng.usize(..most_users)).map(|_| ActivityHash(rng.u64(..))).collect();
            ActiveIn { minute: Minute(rng.i64(..i64::from(u32::MAX))), new: rng.u64(..=users.len() as u64), users }
        };
        let mut told: Vec<ActiveIn> = (0..rng.usize(..3)).map(|_| active(rng)).collect();
        let member_for_ms = *rng.choice(&[10_000, 10_000, 10_000, 10_000, 20, 0]).unwrap();
        if member_for_ms == 0 {
            // From its entry the time is known.
            told.push(ActiveIn { minute: Minute(1), new: 1, users: vec![ActivityHash(1)] });
        }
        let room = (rng.u8(..8) > 0).then(|| rng.u64(..=most));
        let window_ms = *rng.choice(&WINDOWS_MS).unwrap();
        // Where the time is known to some milliseconds only, nothing leaves the window.
        let window_ms = if member_for_ms == 0 { WINDOWS_MS[2] } else { window_ms };
        Self { active: told, window_ms, member_for_ms, room }
    }

    fn request<'s>(&'s self, cursor: &'s Cursor, held: u64) -> SyncRequest<'s> {
        let Self { active, window_ms, member_for_ms, room } = self;
        let (window_ms, member_for_ms, room) = (*window_ms, *member_for_ms, *room);
        SyncRequest { cursor, active, window_ms, member_for_ms, held, room }
    }
}

/// Entries of before, so that some leave a window during the steps.
fn fill(server: &RedisServer, keyspace: &Keyspace, book: &mut Book, began_ms: i64) {
    for age in (0..400).rev() {
        let at_ms = began_ms - SLACK_MS - WINDOWS_MS[0] + 4_000 - age * 20;
        let (id, minute) = (format!("{at_ms}-0"), at_ms / 60_000);
        let user = b"abcdefgh";
        let words = ["XADD", keyspace.activity_key(), &id, "i", "weir-1", "m", &minute.to_string(), "n", "1", "u"];
        let words: Vec<&str> = words.into_iter().chain([std::str::from_utf8(user).unwrap()]).collect();
        server.query::<String>(&words).unwrap();
        let active =
            [ActiveIn { minute: Minute(minute), new: 1, users: vec![ActivityHash(u64::from_be_bytes(*user))] }];
        let cursor = Some("1-1".into());
        let request =
            SyncRequest { cursor: &cursor, active: &active, window_ms: 1 << 40, member_for_ms: 0, held: 0, room: None };
        book.sync("weir-1", &request, at(at_ms));
    }
}

fn at(millis: i64) -> Time {
    Time::from_millis(millis).unwrap()
}

/// A reply without its users.
struct Ends<'r>(&'r SyncReply);

impl std::fmt::Debug for Ends<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SyncReply { active, cursor, more, lost, held, members, .. } = self.0;
        write!(f, "{} entries, {cursor:?}, more {more}, lost {lost}, held {held}, members {members}", active.len())
    }
}

/// The times that the server's clock may have shown at the last turn, which wrote one into a key, and began at `began` or later.
fn times(server: &RedisServer, keyspace: &Keyspace, instance: &str, (step, began): (&Step, Time)) -> Vec<Time> {
    if step.member_for_ms > 0 {
        let member: String =
            server.query(&["HGET", keyspace.activity_members_key(), &format!("i:{instance}")]).unwrap();
        return vec![at(member.split(':').nth(1).unwrap().parse::<i64>().unwrap() - step.member_for_ms)];
    }
    let last: Vec<(String, Vec<redis::Value>)> =
        server.query(&["XREVRANGE", keyspace.activity_key(), "+", "-", "COUNT", "1"]).unwrap();
    let appended_at: i64 = last[0].0.split_once('-').unwrap().0.parse().unwrap();
    (began.millis()..=appended_at).rev().map(at).collect()
}

/// What the server's clock shows.
fn shown_by(server: &RedisServer) -> Time {
    let (seconds, micros): (i64, i64) = server.query(&["TIME"]).unwrap();
    at(seconds * 1_000 + micros / 1_000)
}

async fn run(server: &RedisServer, keyspace: &Keyspace, mut logs: [impl ActivityLog; INSTANCES.len()]) {
    let seed = fastrand::u64(..);
    let (mut rng, mut book, mut seen) = (Rng::with_seed(seed), Book::default(), Seen::default());
    let clock_ms = shown_by(server).millis();
    fill(server, keyspace, &mut book, clock_ms);
    let mut kept: [Kept; INSTANCES.len()] = Default::default();
    for number in 0..STEPS {
        let (place, step) = (rng.usize(..INSTANCES.len()), Step::draw(&mut rng, 2_000));
        let own = &mut kept[place];
        match rng.u8(..40) {
            // Started anew.
            0 => *own = Kept::default(),
            // Its users have taken places.
            1..20 => own.held = rng.u64(..=own.held),
            // Somebody else's history, from before a loss; before all entries of the steps, as their ids differ.
            20 => {
                own.cursor = Some(format!("{}-7", clock_ms - rng.i64(1..300_000)).into());
                own.in_book.clone_from(&own.cursor);
            }
            _ => {}
        }
        let began = shown_by(server);
        let reply = logs[place].sync(&step.request(&own.cursor, own.held)).await.unwrap();
        let shown = |reply: &SyncReply| {
            let begins = reply.cursor.as_deref().and_then(|cursor| cursor.chars().next());
            (reply.active.clone(), begins, reply.more, reply.lost, reply.held, reply.members)
        };
        let request = step.request(&own.in_book, own.held);
        let mut expected = SyncReply::default();
        let is_so = match times(server, keyspace, INSTANCES[place], (&step, began))[..] {
            [now] => {
                expected = book.sync(INSTANCES[place], &request, now);
                shown(&reply) == shown(&expected)
            }
            // Copied for each: a book may hold a million users.
            ref candidates => candidates.iter().any(|now| {
                let mut next = book.clone();
                expected = next.sync(INSTANCES[place], &request, *now);
                let is_so = shown(&reply) == shown(&expected);
                if is_so {
                    book = next;
                }
                is_so
            }),
        };
        assert!(is_so, "seed {seed}, step {number}, {:?}: {:?}\n{:?}", INSTANCES[place], Ends(&reply), Ends(&expected));
        seen.note(&step, own.held, &reply);
        // Now and then the reply is lost.
        if rng.u8(..10) > 0 {
            *own = Kept { cursor: reply.cursor, in_book: expected.cursor, held: reply.held };
        }
    }
    let Seen { read, more, lost, granted, denied, left, ended } = seen;
    let fewest = [read, more, lost, granted, denied, left, ended].into_iter().min();
    assert!(fewest >= Some(10), "the steps of seed {seed} reach too little: {seen:?}");
}

impl Seen {
    fn note(&mut self, step: &Step, held: u64, reply: &SyncReply) {
        self.read += u32::from(!reply.active.is_empty());
        self.more += u32::from(reply.more);
        self.lost += u32::from(reply.lost);
        self.granted += u32::from(reply.held > held);
        self.denied += u32::from(reply.held == held && step.room.is_some());
        self.left += u32::from(step.member_for_ms == 0);
        self.ended += u32::from(step.member_for_ms == 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_turns_are_those_of_the_reference() {
    let server = crate::redis_support::server();
    let options = options(&[server.url()]);
    let opened = opened(&options).await.unwrap();
    run(&server, &opened.keyspace, INSTANCES.map(|name| log(&options, &opened, name))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_turns_in_a_cluster_are_those_of_the_reference() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let opened = opened(&options).await.unwrap();
    let owner = cluster.node(cluster.owner_of(opened.keyspace.meta_slot()).unwrap());
    run(owner, &opened.keyspace, INSTANCES.map(|name| log(&options, &opened, name))).await;
}
