//! Instances tell each other who is active, and never hold more places than there is room for, whatever is lost, repeated or cut.

mod rate;
mod steps;

use std::sync::Arc;

use testkit::{
    proxy::{Mode, Proxy},
    redis::{RedisCluster, RedisServer},
};
use weir_core::{
    activity::{ActivityHash, Minute},
    activity_log::{ActiveIn, Cursor, SyncReply, SyncRequest},
    ports::{ActivityLog, StoreError},
};
use weir_redis::{Keyspace, Opened, RedisActivityLog, RedisOptions, RedisStats};

use crate::redis_support::{opened, options, own, server};

const WINDOW_MS: i64 = 600_000;
const MEMBER_FOR_MS: i64 = 10_000;
const MINUTE: Minute = Minute(29_918_880);
/// The most users that may be active.
const MOST: u64 = 1_000;

fn log(options: &RedisOptions, opened: &Opened, instance: &str) -> RedisActivityLog {
    RedisActivityLog::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, instance)
}

fn users(of: std::ops::Range<u64>) -> ActiveIn {
    ActiveIn { minute: MINUTE, new: of.end - of.start, users: of.map(ActivityHash).collect() }
}

/// An instance, as its keeper is: its cursor, its places, and whom it knows.
struct Instance {
    log: RedisActivityLog,
    cursor: Cursor,
    held: u64,
    known: u64,
}

impl Instance {
    fn new(options: &RedisOptions, opened: &Opened, name: &str) -> Self {
        Self { log: log(options, opened, name), cursor: None, held: 0, known: 0 }
    }

    /// A turn that tells of users who have had places, and wants as many places as there are.
    async fn turn(&mut self, told: &[ActiveIn]) -> SyncReply {
        self.try_turn(told, MEMBER_FOR_MS).await.unwrap()
    }

    async fn try_turn(&mut self, told: &[ActiveIn], member_for_ms: i64) -> Result<SyncReply, StoreError> {
        let new: u64 = told.iter().map(|active| active.new).sum();
        let (known, held) = (self.known + new, self.held.saturating_sub(new));
        let request = SyncRequest {
            cursor: &self.cursor,
            active: told,
            window_ms: WINDOW_MS,
            member_for_ms,
            held,
            room: Some(MOST.saturating_sub(known)),
        };
        let reply = self.log.sync(&request).await?;
        (self.held, self.cursor) = (reply.held, reply.cursor.clone());
        self.known = known + reply.active.iter().map(|active| active.new).sum::<u64>();
        Ok(reply)
    }
}

/// A server, its keyspace, and instances on it.
async fn instances<const N: usize>(names: [&str; N]) -> (RedisServer, Opened, [Instance; N]) {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let instances = names.map(|name| Instance::new(&options, &opened, name));
    (server, opened, instances)
}

fn told_by(reply: &SyncReply) -> Vec<u64> {
    reply.active.iter().flat_map(|active| active.users.iter().map(|user| user.0)).collect()
}

#[tokio::test]
async fn each_reads_what_the_others_append_and_no_more_places_are_held_than_there_is_room() {
    let (server, opened, [mut a, mut b]) = instances(["weir-0", "weir\r\n:1 é:7"]).await;
    assert_eq!(a.turn(&[]).await.held, 0, "it was no member");
    b.turn(&[]).await;
    assert_eq!(a.turn(&[]).await.held, 500);
    assert_eq!(b.turn(&[]).await.held, 500);
    assert_eq!(a.turn(&[users(0..300)]).await.held, 200, "the other one holds 500 still");
    let reply = b.turn(&[users(500..600)]).await;
    assert_eq!((told_by(&reply), reply.held, reply.members), ((0..300).collect(), 400, 2));
    assert_eq!(reply.active[0], users(0..300));
    let reply = a.turn(&[]).await;
    assert_eq!((told_by(&reply), a.known), ((500..600).collect(), 400));
    assert!(b.turn(&[]).await.active.is_empty(), "each is told once, and never of its own");
    assert!(reply.bytes > 800);
    for key in [opened.keyspace.activity_key(), opened.keyspace.activity_members_key()] {
        let ends_in_ms = server.query::<i64>(&["PTTL", key]).unwrap();
        assert!((WINDOW_MS..2 * WINDOW_MS).contains(&ends_in_ms), "{key}: {ends_in_ms}");
    }
}

#[tokio::test]
async fn a_member_that_leaves_or_is_silent_leaves_its_places_to_others() {
    let (server, opened, [mut a, mut b]) = instances(["a", "b"]).await;
    for _ in 0..2 {
        a.turn(&[]).await;
        b.turn(&[]).await;
    }
    assert_eq!((a.held, b.held), (500, 500));
    let left = a.try_turn(&[], 0).await.unwrap();
    assert_eq!((left.held, left.members), (500, 1));
    assert_eq!((b.turn(&[]).await.members, b.held), (1, 1_000));

    a.held = 0;
    b.turn(&[]).await;
    a.turn(&[]).await;
    b.held = 500;
    let held = b.turn(&[]).await;
    assert_eq!((held.members, held.held), (2, 500));
    // As if a had been silent since its turn for longer than it is a member.
    let members = opened.keyspace.activity_members_key();
    let member: String = server.query(&["HGET", members, "i:a"]).unwrap();
    let [places, ends, room, appended] = member.split(':').collect::<Vec<_>>()[..] else { panic!("{member}") };
    let ended = ends.parse::<i64>().unwrap() - MEMBER_FOR_MS;
    server.query::<()>(&["HSET", members, "i:a", &format!("{places}:{ended}:{room}:{appended}")]).unwrap();
    let held = b.turn(&[]).await;
    assert_eq!((held.members, held.held), (1, 1_000));
}

#[tokio::test]
async fn who_is_started_anew_reads_all_of_the_window_in_parts_with_its_own_users() {
    let (_server, _, [mut a, mut b]) = instances(["a", "b"]).await;
    let each = 200_000;
    a.turn(&[users(0..each)]).await;
    b.turn(&[users(each..2 * each)]).await;
    while b.turn(&[]).await.more {}
    let (mut cursor, mut found, mut parts) = (None, Vec::new(), 0);
    loop {
        a.cursor = cursor;
        let reply = a.turn(&[users(2 * each + parts..2 * each + parts + 1)]).await;
        parts += 1;
        assert!(reply.bytes < 2 << 20, "{} bytes", reply.bytes);
        found.extend(told_by(&reply));
        cursor = reply.cursor.clone();
        if !reply.more {
            break;
        }
        assert_eq!(reply.held, a.held, "no places before all is read");
    }
    assert!(parts > 2, "{parts} parts");
    found.sort_unstable();
    // Those of the last turn are its own still.
    assert!(found.iter().copied().eq(0..2 * each + parts - 1), "{} users", found.len());
    let reply = b.turn(&[]).await;
    assert_eq!(told_by(&reply), (2 * each..2 * each + parts).collect::<Vec<_>>(), "b goes on where it was");
}

#[tokio::test]
async fn a_log_that_lost_its_end_is_read_from_the_beginning_and_a_wiped_one_is_filled_again() {
    let (server, opened, [mut a, mut b]) = instances(["a", "b"]).await;
    let key = opened.keyspace.activity_key();
    a.turn(&[]).await;
    b.turn(&[users(0..10)]).await;
    assert!(!a.turn(&[users(10..20)]).await.lost);
    let cursor = a.cursor.clone().unwrap();
    assert_eq!(server.query::<u64>(&["XDEL", key, &cursor]).unwrap(), 1);
    b.turn(&[users(20..30)]).await;
    let reply = a.turn(&[]).await;
    assert!(reply.lost && !reply.more);
    assert_eq!(told_by(&reply), (0..10).chain(20..30).collect::<Vec<_>>(), "the others' alone");
    assert!(!a.turn(&[]).await.lost);

    let held = a.held + b.held;
    server.query::<()>(&["FLUSHALL"]).unwrap();
    // Before all have taken a turn, nobody gets more.
    let reply = a.turn(&[]).await;
    assert!(reply.lost && reply.active.is_empty() && reply.cursor.is_none());
    let reply = b.turn(&[users(30..40)]).await;
    assert!(reply.lost && a.held + b.held <= held);
    assert_eq!(told_by(&a.turn(&[]).await), (30..40).collect::<Vec<_>>());
    b.turn(&[]).await;
    // b has never heard of the ten who were lost.
    assert!(a.held + b.held + 30 <= MOST && a.held + b.held >= held - 10, "{} and {} of {held}", a.held, b.held);
}

#[tokio::test]
async fn a_turn_whose_reply_is_lost_is_taken_again_and_grants_nothing_twice() {
    let server = server();
    let target = server.url().trim_start_matches("redis://").to_owned();
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&target).unwrap()).await.unwrap();
    let options = RedisOptions { tries: 1, ..options(&[format!("redis://{}", proxy.address())]) };
    let opened = opened(&options).await.unwrap();
    let [mut a, mut b] = ["a", "b"].map(|name| Instance::new(&options, &opened, name));
    a.turn(&[users(500..510)]).await;
    b.turn(&[]).await;
    proxy.set(Mode::LoseReply);
    assert!(matches!(a.try_turn(&[users(0..100)], MEMBER_FOR_MS).await, Err(StoreError::Temporary(_))));
    let reply = b.turn(&[]).await;
    assert_eq!((told_by(&reply).len(), reply.held), (100, 445), "what the lost turn told and holds counts");
    let reply = a.turn(&[users(0..100)]).await;
    assert_eq!(reply.held, 345, "told twice, counted twice until b has read it");
    assert_eq!(told_by(&b.turn(&[]).await), (0..100).collect::<Vec<_>>(), "told twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_turns_go_on_after_the_slot_has_moved() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let opened = opened(&options).await.unwrap();
    let keyspace: &Keyspace = &opened.keyspace;
    let [mut a, mut b] = ["a", "b"].map(|name| Instance::new(&options, &opened, name));
    a.turn(&[users(0..10)]).await;
    let slot = keyspace.meta_slot();
    let from = cluster.owner_of(slot).unwrap();
    cluster.move_slots([slot], from, (from + 1) % 3).unwrap();
    assert_eq!(told_by(&b.turn(&[users(10..20)]).await), (0..10).collect::<Vec<_>>());
    let reply = a.turn(&[]).await;
    assert_eq!((told_by(&reply), reply.lost), ((10..20).collect(), false));
}

#[tokio::test]
async fn a_key_of_another_kind_is_reported_and_left_alone() {
    let (server, opened, [mut a]) = instances(["a"]).await;
    let key = opened.keyspace.activity_members_key();
    server.query::<()>(&["SET", key, "mine"]).unwrap();
    let refused = a.try_turn(&[users(0..10)], MEMBER_FOR_MS).await;
    assert!(matches!(&refused, Err(StoreError::Fatal(why)) if why.contains("WRONGTYPE")), "{refused:?}");
    assert_eq!(server.query::<String>(&["GET", key]).unwrap(), "mine");
}
