//! The intents of a run: the same for the same seed, whoever caps them.

use std::fmt::Write;

use serde::Serialize;
use testkit::kafka::Record;

/// A segment, and what one of its users may be sent.
#[derive(Debug)]
pub struct Segment {
    /// Its name.
    pub name: &'static str,
    /// Sends in 24 hours.
    pub daily: u32,
    /// Sends in 7 days.
    pub weekly: u32,
}

/// With five intents a user, picked evenly and all of one day, a quarter of them is suppressed.
pub const SEGMENTS: [Segment; 4] = [
    Segment { name: "new", daily: 3, weekly: 10 },
    Segment { name: "active", daily: 4, weekly: 12 },
    Segment { name: "loyal", daily: 5, weekly: 14 },
    Segment { name: "dormant", daily: 6, weekly: 16 },
];

/// 2026-01-01, the time that intents say they were made at, in ms since 1970.
const CREATED_AT_MS: u64 = 1_767_225_600_000;
/// Brings an intent to some 250 bytes; weir never looks at it.
const BODY: &str = "A new season has begun: see what is there for you";

/// The segment of a user.
pub fn segment_of(user: u32) -> &'static Segment {
    &SEGMENTS[user as usize % SEGMENTS.len()]
}

/// How many intents for how many users.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Workload {
    /// Intents.
    pub intents: u32,
    /// Users that they are picked from; their ids are 0 and up.
    pub users: u32,
    seed: u64,
}

/// One intent.
#[derive(Debug, Clone, Copy)]
pub struct Intent {
    number: u32,
    /// Whom it is for.
    pub user: u32,
    kind: usize,
}

impl Workload {
    pub fn new(intents: u32, users: u32, seed: u64) -> Self {
        Self { intents, users, seed }
    }

    /// All of them, in order.
    pub fn intents(self) -> impl Iterator<Item = Intent> {
        let mut numbers = fastrand::Rng::with_seed(self.seed);
        (0..self.intents).map(move |number| Intent {
            number,
            user: numbers.u32(..self.users),
            kind: numbers.usize(..KINDS.len()),
        })
    }

    /// Users that at least one intent is for.
    pub fn users_met(self) -> usize {
        let mut users: Vec<u32> = self.intents().map(|intent| intent.user).collect();
        users.sort_unstable();
        users.dedup();
        users.len()
    }

    /// The ids of a segment's users, one a line.
    pub fn members(self, segment: usize) -> String {
        let ids = (0..self.users).filter(|user| *user as usize % SEGMENTS.len() == segment);
        ids.fold(String::new(), |mut lines, id| {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{id}");
            lines
        })
    }
}

/// Channels and categories in use.
const KINDS: [(&str, &str); 4] = [("push", "promo"), ("email", "promo"), ("email", "news"), ("in-app", "partner")];

impl Intent {
    /// Its id, of a UUID's shape and length: what most publishers have, and what a sorted set holds as it is.
    pub fn id(&self) -> String {
        format!("0195c0de-0000-7000-8000-{:012}", self.number)
    }

    /// As it is published: some 250 bytes, with the user as the key.
    pub fn record(&self) -> Record {
        let (channel, category) = KINDS[self.kind];
        let (number, user, id) = (self.number, self.user, self.id());
        let (campaign, created_at) = (number % 20, CREATED_AT_MS + u64::from(number));
        let value = format!(
            r#"{{"id":"{id}","user_id":{user},"channel":"{channel}","category":"{category}","campaign":"c-{campaign}","created_at":{created_at},"payload":{{"title":"For you","body":"{BODY}","link":"app://offers/{number}"}}}}"#
        );
        Record::new(user.to_string(), value)
    }
}

/// The policy: two sliding caps a segment, no filters.
pub fn policy() -> String {
    let mut text = "version = \"bench-1\"\n[default]\ncaps = \"unlimited\"\n".to_owned();
    for Segment { name, daily, weekly } in &SEGMENTS {
        let _ = write!(
            text,
            "[segments.{name}]\ncaps = [\n  {{ name = \"daily\", limit = {daily}, window = \"24h\" }},\n  \
             {{ name = \"weekly\", limit = {weekly}, window = \"7d\" }},\n]\n"
        );
    }
    text
}
