//! The records of a batch: the same in every run.

use std::sync::Arc;

use weir_core::{
    basis::{current::Current, document::Format, shard::UserHash, time::Time},
    batch::{
        decider::Decider,
        record::{Headers, RecordView, Records},
    },
    history::{
        admit::AdmitBatch,
        decide::{AdmitVerdict, Answer, Scope},
    },
    intent::class::Filter,
    limit::{
        HeldLimits,
        budget::{Budget, BudgetSpan, WhenUnavailable},
        pressure::{Pressure, PressureRule, PressureState},
    },
    policy::{Action, Period, Policy, Selection, file::parse_policy},
    segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};

/// Intents of a batch, as in the worker's default.
pub const BATCH: usize = 10_000;
const SEED: u64 = 1;
const USERS: u32 = 200_000;
const PARTITIONS: i32 = 8;
/// 2026-11-20T09:00:00.123Z in ms since 1970.
const NOW_MS: i64 = 1_795_165_200_123;
/// Of all intents one in this many is denied by a cap.
const DENIED: u32 = 4;
/// Brings an intent to some 250 bytes; weir never looks at it.
const BODY: &str = "A new season has begun: see what is there for you";
const KINDS: [(&str, &str); 4] = [("push", "promo"), ("email", "promo"), ("email", "news"), ("in-app", "partner")];
const SEGMENTS: [&str; 4] = ["new", "active", "loyal", "dormant"];

type Header = (&'static str, String);

pub struct OwnedRecord {
    pub value: Vec<u8>,
    pub headers: Vec<Header>,
    partition: i32,
    offset: i64,
    bytes_beside_value: usize,
}

impl Headers for OwnedRecord {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.headers.get(index).map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
    }
}

pub struct Batch(pub Vec<OwnedRecord>);

impl Records for Batch {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let (record, timestamp) = (&self.0[index], Time::from_millis(NOW_MS - 5));
        let OwnedRecord { ref value, partition, offset, .. } = *record;
        RecordView { key: None, value: Some(value), partition, offset, timestamp, headers: record, deferral: None }
    }

    /// Kafka's batches know it since they took the record from the client.
    fn bytes_beside_value(&self, index: usize) -> usize {
        self.0[index].bytes_beside_value
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub campaigns: usize,
    pub payload: Payload,
    pub sent: Sent,
}

/// What an intent carries beside what is read.
#[derive(Debug, Clone, Copy)]
pub enum Payload {
    /// A few short texts in ASCII.
    Short,
    /// The same length in another script, with escapes.
    Script,
    /// Brackets, escapes and numbers: much to look at for its length.
    Hostile,
}

#[derive(Debug, Clone, Copy)]
pub enum Sent {
    Plain,
    /// With eight headers that say nothing to weir.
    WithHeaders,
    /// As the data of an event.
    Structured,
    /// With an event's attributes in headers.
    Binary,
    /// Cut off: no JSON.
    CutOff,
}

impl Shape {
    /// What the bench of the whole sends.
    pub const USUAL: Self = Self { campaigns: 20, payload: Payload::Short, sent: Sent::Plain };

    pub fn batch(self) -> Batch {
        let mut numbers = fastrand::Rng::with_seed(SEED);
        let partition_of = |number: usize| i32::try_from(number / 128).unwrap() % PARTITIONS;
        let records = (0..BATCH).map(|number| {
            let (user, kind) = (numbers.u32(..USERS), numbers.usize(..KINDS.len()));
            let (value, headers) = self.record(number, user, KINDS[kind], numbers.usize(..self.campaigns));
            let offset = 1_000_000 + i64::try_from(number).unwrap();
            let bytes_beside_value = headers.iter().map(|(name, value)| name.len() + value.len() + 10).sum();
            let (value, partition) = (value.into_bytes(), partition_of(number));
            OwnedRecord { value, headers, partition, offset, bytes_beside_value }
        });
        Batch(records.collect())
    }

    fn record(self, number: usize, user: u32, kind: (&str, &str), campaign: usize) -> (String, Vec<Header>) {
        let (id, payload) = (format!("0195c0de-0000-7000-8000-{number:012}"), self.payload(number));
        let (channel, category) = kind;
        let made = NOW_MS - 60_000 + i64::try_from(number).unwrap();
        let class = format!(r#""channel":"{channel}","category":"{category}","campaign":"c-{campaign}""#);
        let whole = || format!(r#"{{"id":"{id}","user_id":{user},{class},"created_at":{made},"payload":{payload}}}"#);
        let event_time = Time::from_millis(made).unwrap();
        let data = || format!(r#"{{{class},"payload":{payload}}}"#);
        match self.sent {
            Sent::Plain => (whole(), Vec::new()),
            Sent::WithHeaders => {
                let names =
                    ["traceparent", "tracestate", "b3", "source", "schema-id", "tenant", "retry", "x-request-id"];
                (whole(), names.map(|name| (name, format!("{name}-{number}"))).to_vec())
            }
            Sent::Structured => (
                format!(
                    r#"{{"specversion":"1.0","type":"send","source":"/crm","id":"{id}","subject":"{user}","time":"{event_time}","data":{}}}"#,
                    data()
                ),
                vec![("content-type", "application/cloudevents+json; charset=utf-8".to_owned())],
            ),
            Sent::Binary => (
                data(),
                vec![
                    ("ce_specversion", "1.0".to_owned()),
                    ("ce_type", "send".to_owned()),
                    ("ce_source", "/crm".to_owned()),
                    ("ce_id", id.clone()),
                    ("ce_subject", user.to_string()),
                    ("ce_time", event_time.to_string()),
                    ("content-type", "application/json".to_owned()),
                ],
            ),
            Sent::CutOff => {
                let mut value = whole();
                value.truncate(value.len() - 1);
                (value, Vec::new())
            }
        }
    }

    fn payload(self, number: usize) -> String {
        match self.payload {
            Payload::Short => format!(r#"{{"title":"For you","body":"{BODY}","link":"app://offers/{number}"}}"#),
            Payload::Script => format!(
                r#"{{"title":"専用","body":"新しい季節が\n始まりました 🌸 ご覧ください","link":"app:\/\/offers\/{number}"}}"#
            ),
            Payload::Hostile => format!(
                r#"{{"a":[[[[[[1e400,-0.10E+5,{{"b":{{}}}},[],"\ud83d\ude00\"\\",null,true]]]]]],"\u0069d":[{number},"{{[\"]}}"],"i":{{"id":"x","id":"y"}} , "z" : [ 1 , 2 , 3 ] }}"#
            ),
        }
    }
}

/// Three budgets that every intent takes from: one of each campaign, a rolling one, and one in total.
pub fn three_budgets() -> Vec<Budget> {
    let budget = |name: &str, scope, span| {
        let (name, selection) = (name.into(), Selection::default());
        let (when_spent, on_unavailable) = (Action::Suppress, WhenUnavailable::Wait);
        Budget { name, selection, scope, limit: 1_000_000, span, best_effort: false, when_spent, on_unavailable }
    };
    vec![
        budget("campaign-day", Scope::SameCampaign, BudgetSpan::Per(Period::Day)),
        budget("provider-hour", Scope::Every, BudgetSpan::Rolling { length_ms: 3_600_000, text: "1h".into() }),
        budget("total", Scope::Every, BudgetSpan::Total),
    ]
}

/// Four segments with two sliding caps each, and some of their users in them; and these budgets.
pub fn decider(budgets: Vec<Budget>) -> Decider {
    let cap = |name: &str, limit: u32, over: &str| format!("{{ name = {name:?}, limit = {limit}, window = {over:?} }}");
    let segment = |(name, extra): (&&str, u32)| {
        let (daily, weekly) = (cap("daily", 3 + extra, "24h"), cap("weekly", 10 + 2 * extra, "7d"));
        format!("[segments.{name}]\ncaps = [{daily}, {weekly}]\n")
    };
    let segments: String = SEGMENTS.iter().zip(0..).map(segment).collect();
    let text = format!("version = \"2026-11-20.1\"\n[default]\ncaps = \"unlimited\"\n{segments}");
    let policy = Policy { budgets, ..parse_policy("policy.toml", &text, Format::Toml, 8 * 86_400_000).unwrap() };
    Decider::new("send-intents", Current::new(Arc::new(set())), Current::new(Arc::new(policy)))
}

/// The same with pressure on all intents. All users are active, and the maximum is reached.
pub fn decider_with_pressure() -> Decider {
    let decider = decider(Vec::new());
    let (filter, action) = (Filter::default(), Action::Suppress);
    let rule = PressureRule { max_active_users: u64::from(USERS), window_minutes: 30, filter, action };
    let (pressure, inbox) = Pressure::new();
    // Nobody is told in this process.
    drop(inbox);
    pressure.replace(Some(Arc::new(PressureState::new(&rule))));
    pressure.note((0..USERS).map(|user| UserHash::of(&user.to_string()).into()), now().into(), now().into());
    let policy = Policy { pressure: Some(rule), ..(*decider.policy.get()).clone() };
    let held = HeldLimits { pressure: Some(pressure), ..decider.held };
    Decider { policy: Current::new(Arc::new(policy)), held, ..decider }
}

/// Users are spread evenly over the segments, without a pattern.
fn set() -> SegmentSet {
    let mut numbers = fastrand::Rng::with_seed(SEED);
    let place: Vec<usize> = (0..USERS).map(|_| numbers.usize(..SEGMENTS.len())).collect();
    let segments = SEGMENTS.iter().enumerate().map(|(at, name)| Segment {
        name: (*name).to_owned(),
        sha256: Sha256([0; 32]),
        bytes: 0,
        members: Arc::new(Members::U32((0..USERS).filter(|&user| place[user as usize] == at).collect())),
    });
    SegmentSet::new("2026-11-20T00:00:00Z".to_owned(), UserIds::new(UserIdKind::U32, ""), segments.collect())
}

pub fn now() -> Time {
    Time::from_millis(NOW_MS).unwrap()
}

/// What a store answers: a quarter is denied by one of the two caps, each by an entry of its own.
pub fn answers(admit_batch: &AdmitBatch<'_>, denied: Denied) -> Vec<Option<Answer>> {
    let mut numbers = fastrand::Rng::with_seed(SEED);
    let answer = |_| {
        let verdict = if denied.is(&mut numbers) {
            let blocking = Time::from_millis(NOW_MS - i64::from(numbers.u32(1..86_400_000)));
            AdmitVerdict::Denied { cap: numbers.u8(..2), used: 3, blocking }
        } else {
            AdmitVerdict::Allowed
        };
        Some(Answer { verdict, at: now(), ahead: false })
    };
    admit_batch.requests.iter().map(answer).collect()
}

/// Which intents a cap denies.
#[derive(Debug, Clone, Copy)]
pub enum Denied {
    None,
    AQuarter,
    All,
}

impl Denied {
    fn is(self, numbers: &mut fastrand::Rng) -> bool {
        match self {
            Self::None => false,
            Self::AQuarter => numbers.u32(..DENIED) == 0,
            Self::All => true,
        }
    }
}
