//! The intents of a run: the same for the same seed.

use clap::ValueEnum;
use serde::Serialize;
use testkit::kafka::Record;
use weir_core::basis::shard::UserHash;

#[derive(Debug)]
pub struct Segment {
    pub name: &'static str,
    pub daily: u32,
    pub weekly: u32,
}

/// With five intents per user, picked evenly and all of one day, a quarter of them is suppressed.
pub const SEGMENTS: [Segment; 4] = [
    Segment { name: "new", daily: 3, weekly: 10 },
    Segment { name: "active", daily: 4, weekly: 12 },
    Segment { name: "loyal", daily: 5, weekly: 14 },
    Segment { name: "dormant", daily: 6, weekly: 16 },
];

/// Sends in 24 hours and in 7 days of a user who is in none of them.
const DEFAULT_CAPS: (u32, u32) = (4, 12);

/// 2026-01-01, the time that intents say they were made at, in ms since 1970.
const CREATED_AT_MS: u64 = 1_767_225_600_000;
/// How steeply the frequency of users falls in [`Order::Zipf`].
const ZIPF: f64 = 1.2;
/// Brings an intent to some 250 bytes; weir never looks at it.
const BODY: &str = "A new season has begun: see what is there for you";

pub fn segment_of(user: u32) -> &'static Segment {
    &SEGMENTS[user as usize % SEGMENTS.len()]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Uniform,
    /// User number r is picked as often as 1 / r^1.2 says.
    Zipf,
    /// From the lowest id to the highest, again and again: a blast.
    ById,
}

/// How a publisher finds the partition of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Partitioner {
    /// As Kafka's clients do, by murmur2 of the key
    #[default]
    Key,
    /// By shard, so that a partition has users of few shards (docs/operations.md)
    Shard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caps {
    TwoWindows,
    /// The second window is of push alone.
    ChannelFilter,
}

/// The limit of [`Caps::ChannelFilter`]: low enough to suppress some.
const PUSH_WEEKLY: u32 = 2;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Workload {
    pub intents: u32,
    /// Users that there are; their ids are 0 and up.
    pub users: u32,
    /// Users of them that intents are for, evenly spread over the ids.
    pub active: u32,
    /// Users that are in a segment, from 0 up; all, as a rule.
    pub segmented: u32,
    pub campaigns: u32,
    pub order: Order,
    pub partitioner: Partitioner,
    pub payload: Payload,
    pub caps: Caps,
    /// From when on they may be sent, in milliseconds since 1970; at once where it is not set.
    pub not_before_ms: Option<i64>,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Nothing: some 110 bytes in all.
    None,
    /// A message: some 250 bytes in all.
    Message,
}

struct Intent {
    number: u32,
    user: u32,
    kind: usize,
}

impl Workload {
    /// Intents of 20 campaigns for all of these users, picked evenly.
    pub fn new(intents: u32, users: u32) -> Self {
        let (active, segmented) = (users, users);
        let (order, partitioner) = (Order::Uniform, Partitioner::Key);
        let (payload, caps, not_before_ms) = (Payload::Message, Caps::TwoWindows, None);
        let (campaigns, seed) = (20, 1);
        Self { intents, users, active, segmented, campaigns, order, partitioner, payload, caps, not_before_ms, seed }
    }

    /// The intents, as they are published to so many partitions, with the user as the key.
    pub fn records(self, partitions: i32) -> impl Iterator<Item = Record> {
        self.intents().map(move |intent| self.record(&intent, partitions))
    }

    fn intents(self) -> impl Iterator<Item = Intent> {
        let mut numbers = fastrand::Rng::with_seed(self.seed);
        let mut pick = self.picker();
        (0..self.intents).map(move |number| {
            let (user, kind) = (pick(number, &mut numbers), numbers.usize(..KINDS.len()));
            Intent { number, user, kind }
        })
    }

    fn record(self, intent: &Intent, partitions: i32) -> Record {
        let Intent { number, user, kind } = *intent;
        let ((channel, category), id) = (KINDS[kind], id(number));
        let (campaign, created_at) = (number % self.campaigns, CREATED_AT_MS + u64::from(number));
        let mut value = format!(
            r#"{{"id":"{id}","user_id":{user},"channel":"{channel}","category":"{category}","campaign":"c-{campaign}""#
        );
        if self.payload == Payload::Message {
            value += &format!(
                r#","created_at":{created_at},"payload":{{"title":"For you","body":"{BODY}","link":"app://offers/{number}"}}"#
            );
        }
        if let Some(not_before_ms) = self.not_before_ms {
            value += &format!(r#","not_before":{not_before_ms}"#);
        }
        value.push('}');
        let key = user.to_string();
        let partition = match self.partitioner {
            Partitioner::Key => None,
            Partitioner::Shard => Some(UserHash::of(&key).shard(partitions as u16).into()),
        };
        Record { partition, ..Record::new(key, value) }
    }

    fn picker(self) -> impl FnMut(u32, &mut fastrand::Rng) -> u32 {
        let mut all = 0.0;
        let sums: Vec<f64> = match self.order {
            Order::Uniform | Order::ById => Vec::new(),
            Order::Zipf => (1..=self.active)
                .map(|rank| {
                    all += f64::from(rank).powf(-ZIPF);
                    all
                })
                .collect(),
        };
        move |number, numbers| {
            let active = match self.order {
                Order::Uniform => numbers.u32(..self.active),
                Order::ById => number % self.active,
                Order::Zipf => {
                    let drawn = numbers.f64() * all;
                    let rank = sums.partition_point(|sum| *sum < drawn).min(sums.len() - 1) as u64;
                    // Those who get many are anywhere; a prime above all numbers of users reaches each of them.
                    (rank * 2_654_435_761 % u64::from(self.active)) as u32
                }
            };
            self.spread(active)
        }
    }

    /// The id of an active user: one of each stretch of ids, at a place without a pattern, so that segments keep their shares.
    fn spread(self, active: u32) -> u32 {
        let start = |active: u32| u64::from(active) * u64::from(self.users) / u64::from(self.active);
        let (from, width) = (start(active), start(active + 1) - start(active));
        let place = (u64::from(active).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % width;
        (from + place) as u32
    }

    /// Users that at least one intent is for.
    pub fn users_met(self) -> usize {
        let mut users: Vec<u32> = self.intents().map(|intent| intent.user).collect();
        users.sort_unstable();
        users.dedup();
        users.len()
    }

    /// How many intents are to be suppressed, where all are of one day. A user's intents are decided in their order.
    pub fn suppressed(self) -> u32 {
        let mut approved = vec![(0_u32, 0_u32); self.users as usize];
        let mut suppressed = 0;
        for intent in self.intents() {
            let daily = if intent.user < self.segmented { segment_of(intent.user).daily } else { DEFAULT_CAPS.0 };
            let push = KINDS[intent.kind].0 == FILTERED_CHANNEL;
            let (all, of_push) = &mut approved[intent.user as usize];
            let full = push && self.caps == Caps::ChannelFilter && *of_push >= PUSH_WEEKLY;
            if *all >= daily || full {
                suppressed += 1;
            } else {
                *all += 1;
                *of_push += u32::from(push);
            }
        }
        suppressed
    }

    /// The ids of a segment's users, one a line.
    pub fn members(self, segment: usize) -> String {
        let ids = (0..self.segmented).filter(|user| *user as usize % SEGMENTS.len() == segment);
        ids.map(|id| format!("{id}\n")).collect()
    }
}

/// The channel of [`Caps::ChannelFilter`].
const FILTERED_CHANNEL: &str = "push";

const KINDS: [(&str, &str); 4] = [("push", "promo"), ("email", "promo"), ("email", "news"), ("in-app", "partner")];

/// An intent's id, of a UUID's shape and length: what most publishers have, and what a sorted set holds as it is.
pub fn id(number: u32) -> String {
    format!("0195c0de-0000-7000-8000-{number:012}")
}

/// The policy: two sliding caps per segment.
pub fn policy(kind: Caps) -> String {
    let of = |of: &Segment| format!("[segments.{}]\n{}", of.name, caps(kind, (of.daily, of.weekly)));
    let segments: String = SEGMENTS.iter().map(of).collect();
    format!("version = \"bench-1\"\n[default]\n{}{segments}", caps(kind, DEFAULT_CAPS))
}

fn caps(kind: Caps, (daily, weekly): (u32, u32)) -> String {
    let weekly = match kind {
        Caps::TwoWindows => format!("limit = {weekly}"),
        Caps::ChannelFilter => format!("limit = {PUSH_WEEKLY}, channel = \"{FILTERED_CHANNEL}\""),
    };
    format!(
        "caps = [\n  {{ name = \"daily\", limit = {daily}, window = \"24h\" }},\n  \
         {{ name = \"weekly\", {weekly}, window = \"7d\" }},\n]\n"
    )
}
