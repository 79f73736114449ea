//! Instances tell each other who is active, and never hold more places than there is room for, whatever is lost or cut.

use std::sync::Arc;

use testkit::redis::RedisServer;
use weir_core::{
    limit::{
        pressure::{
            activity::{ActivityHash, Minute},
            activity_log::{ActiveIn, Cursor, SyncReply, SyncRequest},
        },
        share::TurnNumber,
    },
    ports::Share,
};
use weir_redis::{Opened, RedisActivityLog, RedisOptions, RedisStats};

use crate::redis_support::own_keyspace;

const WINDOW_MS: i64 = 600_000;
pub(crate) const MEMBER_FOR_MS: i64 = 10_000;
pub(crate) const MINUTE: Minute = Minute(29_918_880);
const MOST: u64 = 1_000;

pub(crate) fn log(options: &RedisOptions, opened: &Opened, instance: &str) -> RedisActivityLog {
    RedisActivityLog::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, instance)
}

fn users(of: std::ops::Range<u64>) -> ActiveIn {
    ActiveIn { minute: MINUTE, new: of.end - of.start, users: of.map(ActivityHash).collect() }
}

/// An instance, as its keeper is: its cursor, its places, and whom it knows.
struct Instance {
    log: RedisActivityLog,
    turn: TurnNumber,
    cursor: Cursor,
    held: u64,
    known: u64,
}

impl Instance {
    fn new(options: &RedisOptions, opened: &Opened, name: &str) -> Self {
        let turn = TurnNumber { run: 1, number: 0 };
        Self { log: log(options, opened, name), turn, cursor: None, held: 0, known: 0 }
    }

    /// A turn that tells of users who have had places, and wants as many places as there are.
    async fn turn(&mut self, told: &[ActiveIn]) -> SyncReply {
        let new: u64 = told.iter().map(|active| active.new).sum();
        let (known, held) = (self.known + new, self.held.saturating_sub(new));
        self.turn.number += 1;
        let (cursor, active, room) = (self.cursor.clone(), told.to_vec(), Some(MOST.saturating_sub(known)));
        let (window_ms, member_for_ms, wanted) = (WINDOW_MS, MEMBER_FOR_MS, MOST);
        let request = SyncRequest { cursor, active, window_ms, member_for_ms, held, wanted, room };
        let reply = self.log.turn(&(), self.turn, &request).await.unwrap();
        (self.held, self.cursor) = (reply.held, reply.cursor.clone());
        self.known = known + reply.active.iter().map(|active| active.new).sum::<u64>();
        reply
    }
}

async fn instances<const N: usize>(names: [&str; N]) -> (RedisServer, Opened, [Instance; N]) {
    let (server, options, opened) = own_keyspace().await;
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
async fn what_has_left_the_window_is_removed_from_the_log() {
    let (server, opened, [mut a]) = instances(["a"]).await;
    let (key, (seconds, _)) = (opened.keyspace.activity_key(), server.query::<(i64, i64)>(&["TIME"]).unwrap());
    // Entries stay two minutes longer.
    for age_ms in [WINDOW_MS + 121_000, WINDOW_MS] {
        let id = format!("{}-0", seconds * 1_000 - age_ms);
        server.query::<String>(&["XADD", key, &id, "i", "b", "m", "1", "n", "0", "u", "abcdefgh"]).unwrap();
    }
    a.turn(&[users(0..1)]).await;
    assert_eq!(server.query::<u64>(&["XLEN", key]).unwrap(), 2, "the one in the window, and the new one");
}
