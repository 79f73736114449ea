//! The log of activity, and the places that instances share: `lua/sync.lua`.

use std::sync::Arc;

use fastrand::Rng;
use weir_core::{
    basis::time::Time,
    limit::{
        pressure::{
            activity::{ActivityHash, Minute},
            activity_log::{ActiveIn, Book, Cursor, SyncReply, SyncRequest},
        },
        share::{Reference as _, TurnNumber},
    },
    ports::{Share as _, StoreError},
};
use weir_redis::RedisActivityLog;

use super::{INSTANCES, Place, Reached, Scripted, next_turn, two::Shared, unless_overtaken};
use crate::activity::{MEMBER_FOR_MS, MINUTE, log};

/// How long entries stay behind the window.
const SLACK_MS: i64 = 120_000;
/// Longer than all steps take, with the clock's jumps. A server may give an entry an id that is ahead of the time that the script sees, so
/// it is not known to the millisecond when that leaves a window.
const WINDOWS_MS: [i64; 3] = [180_000, 181_000, 600_000];

#[derive(Default)]
struct Kept {
    turn: TurnNumber,
    cursor: Cursor,
    /// The cursor in the book, whose ids may be others.
    in_book: Cursor,
    held: u64,
}

impl Kept {
    /// Goes on behind an entry that neither log has ever had: no turn appends so many in a millisecond.
    fn follow_nobody(&mut self, begin: &str) {
        self.cursor = Some(format!("{begin}-999999").into());
        self.in_book.clone_from(&self.cursor);
    }
}

/// A turn, but for its cursor: that is another one on the server and in the book.
#[derive(Debug)]
pub(super) struct Turn {
    number: TurnNumber,
    request: SyncRequest,
}

impl Turn {
    fn at(&self, cursor: &Cursor) -> SyncRequest {
        SyncRequest { cursor: cursor.clone(), ..self.request.clone() }
    }
}

pub(super) struct Active {
    place: Arc<Place>,
    logs: [RedisActivityLog; INSTANCES.len()],
    book: Book,
    kept: [Kept; INSTANCES.len()],
    /// The cursors of the last reply, and of the book's.
    cursors: [Cursor; 2],
    began: Time,
}

impl Active {
    /// Entries of before, so that some leave a window during the steps.
    fn fill(&mut self) {
        let (key, now_ms) = (self.place.opened.keyspace.activity_key(), self.place.clock().millis());
        for age in (0..100).rev() {
            let at_ms = now_ms - SLACK_MS - WINDOWS_MS[0] + 4_000 - age * 80;
            let (id, minute, m) = (format!("{at_ms}-0"), Minute(at_ms / 60_000), (at_ms / 60_000).to_string());
            self.place.query::<String>(&["XADD", key, &id, "i", "weir-1", "m", &m, "n", "1", "u", "abcdefgh"]);
            let users = vec![ActivityHash(u64::from_be_bytes(*b"abcdefgh"))];
            let (cursor, active) = (Some("1-1".into()), vec![ActiveIn { minute, new: 1, users }]);
            let (window_ms, member_for_ms, held, wanted, room) = (1 << 40, 0, 0, 0, None);
            let request = SyncRequest { cursor, active, window_ms, member_for_ms, held, wanted, room };
            let now = Time::from_millis(at_ms).unwrap();
            self.book.turn("weir-1", TurnNumber::default(), &request, now).unwrap();
        }
    }
}

/// A reply as server and book give it alike: with the first sign of its cursor.
fn shown(reply: SyncReply) -> SyncReply {
    SyncReply { cursor: reply.cursor.map(|cursor| Box::from(&cursor[..1])), bytes: 0, ..reply }
}

fn told(rng: &mut Rng) -> ActiveIn {
    // Now and then so many that a turn cannot read them all.
    let most = if rng.u8(..100) == 0 { 60_000 } else { 40 };
    let users: Vec<ActivityHash> = (0..rng.usize(..most)).map(|_| ActivityHash(rng.u64(..))).collect();
    ActiveIn { minute: Minute(rng.i64(..i64::from(u32::MAX))), new: rng.u64(..=users.len() as u64), users }
}

impl Scripted for Active {
    type Step = Turn;
    /// `None`: a later turn was before it.
    type Reply = Option<SyncReply>;
    const MEMBERS: usize = INSTANCES.len();

    async fn new(place: Arc<Place>) -> Self {
        let logs = INSTANCES.map(|name| log(&place.options, &place.opened, name));
        let (began, (book, kept, cursors)) = (place.clock(), Default::default());
        let mut active = Self { place, logs, book, kept, cursors, began };
        active.fill();
        active
    }

    fn draw(&mut self, rng: &mut Rng, member: usize) -> Vec<Turn> {
        let kept = &mut self.kept[member];
        match rng.u8(..40) {
            // Started anew.
            0 => *kept = Kept { turn: TurnNumber { run: kept.turn.run + 1, number: 0 }, ..Kept::default() },
            // Its users have taken places.
            1..20 => kept.held = rng.u64(..=kept.held),
            // Somebody else's history, from before a loss.
            20 => kept.follow_nobody(&(self.began.millis() - rng.i64(1..400_000)).to_string()),
            _ => {}
        }
        let number = next_turn(rng, &mut kept.turn);
        let request = SyncRequest {
            cursor: None,
            window_ms: *rng.choice(&WINDOWS_MS).unwrap(),
            member_for_ms: if rng.u8(..3) > 0 { MEMBER_FOR_MS } else { [20, 0][rng.usize(..2)] },
            held: kept.held,
            wanted: if rng.bool() { 0 } else { rng.u64(..3_000) },
            room: (rng.u8(..8) > 0).then(|| rng.u64(..=2_000)),
            active: (0..rng.usize(..3)).map(|_| told(rng)).collect(),
        };
        vec![Turn { number, request }]
    }

    async fn on_server(&mut self, member: usize, turns: &[Turn]) -> Result<Vec<(Self::Reply, Time)>, StoreError> {
        // One whose record a later turn has written counts still, so it counted before.
        let began = self.place.clock();
        let (number, request) = (turns[0].number, turns[0].at(&self.kept[member].cursor));
        let reply = unless_overtaken(self.logs[member].turn(&(), number, &request).await)?;
        let now = reply.as_ref().map_or(began, |reply| reply.now);
        if let Some(reply) = &reply {
            self.cursors[0].clone_from(&reply.cursor);
        }
        Ok(vec![(reply.map(shown), now)])
    }

    fn on_reference(&mut self, member: usize, turn: &Turn, now: Time) -> Self::Reply {
        let request = turn.at(&self.kept[member].in_book);
        let reply = self.book.turn(INSTANCES[member], turn.number, &request, now)?;
        self.cursors[1].clone_from(&reply.cursor);
        Some(shown(reply))
    }

    fn note(&mut self, member: usize, turn: &Turn, reply: &Self::Reply, is_heard: bool) -> Reached {
        if let (true, Some(reply)) = (is_heard, reply) {
            let ([cursor, in_book], kept) = (self.cursors.clone(), &mut self.kept[member]);
            (kept.cursor, kept.in_book, kept.held) = (cursor, in_book, reply.held);
        }
        let asked = &turn.request;
        let is = |so: fn(&SyncReply, &SyncRequest) -> bool| reply.as_ref().is_some_and(|reply| so(reply, asked));
        vec![
            ("stale", reply.is_none()),
            ("read", is(|reply, _| !reply.active.is_empty())),
            ("more", is(|reply, _| reply.more)),
            ("lost", is(|reply, _| reply.lost)),
            ("granted", is(|reply, asked| reply.held > asked.held)),
            ("denied", is(|reply, asked| reply.held == asked.held && asked.room.is_some())),
            ("left", asked.member_for_ms == 0),
            ("ended", asked.member_for_ms == 20),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        let keyspace = &self.place.opened.keyspace;
        let keys = [keyspace.activity_key(), keyspace.activity_members_key()];
        keys.map(|key| (keyspace.meta_slot(), key.to_owned())).to_vec()
    }

    fn forget(&mut self) {
        self.book = Book::default();
        // Where the clock goes back, an entry may get an id that one of before had.
        for kept in &mut self.kept {
            if let Some(cursor) = kept.cursor.take() {
                kept.follow_nobody(cursor.split('-').next().unwrap());
            }
        }
    }
}

impl Shared for Active {
    const ALL: u64 = 1_000;
    const READS: usize = 2;

    fn want_all(&mut self, member: usize) -> Turn {
        let users = vec![ActivityHash(member as u64)];
        let kept = &mut self.kept[member];
        kept.turn.number += 1;
        let (cursor, active, held) = (None, vec![ActiveIn { minute: MINUTE, new: 0, users }], kept.held);
        let (window_ms, member_for_ms, wanted, room) = (WINDOWS_MS[2], MEMBER_FOR_MS, Self::ALL, Some(Self::ALL));
        let request = SyncRequest { cursor, active, window_ms, member_for_ms, held, wanted, room };
        Turn { number: kept.turn, request }
    }

    fn held(reply: &Self::Reply) -> u64 {
        reply.as_ref().map_or(0, |reply| reply.held)
    }

    fn taken_at(&self, member: usize, turn: &Turn) -> Time {
        let (key, field) = (self.place.opened.keyspace.activity_members_key(), format!("i:{}", INSTANCES[member]));
        self.place.turned_at(key, &field, turn.request.member_for_ms)
    }
}
