//! The reference, the embedded store, one Redis and a Redis Cluster decide alike.
//!
//! Random sequences of batches go through all four; the first difference is made as small as it gets, printed, and
//! written to `tests/regressions/`, whose cases run always. Such a file can be run by itself:
//! `cargo test --test redis found`.

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::redis_support::{DAY_MS, START_MS, admit, opened, options, store};
use proptest::{
    prelude::*,
    test_runner::{Config, TestError, TestRunner},
};
use serde::{Deserialize, Serialize};
use testkit::{stack::Stack, unique};
use weir_core::{
    basis::{
        shard::{IdHash, Layout, OriginMark, UserHash},
        time::Time,
        window::Window,
    },
    history::{
        EPOCH_MS, Entry, HistoryBounds, MAX_ENTRIES,
        admit::{AdmitBatch, AdmitRequest, CapQuery},
        decide::{AdmitVerdict, Answer, Cap, MAX_AHEAD_MS, RecordWhen, Scope, Send, decide},
        pack, unpack,
    },
    intent::class::{Campaign, ClassNames, Filter, KindNames, KindTable},
    ports::embedded::EmbeddedStore,
};
use weir_redis::RedisStore;

/// A bound that histories reach: the lowest that `redis.max_entries` may be.
const FEW_ENTRIES: u32 = 200;
/// How many decisions the random sequences of a test hold together, at least.
const DECISIONS: usize = 50_000;

/// A sequence of batches; as JSON, what `tests/regressions/` holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Case {
    about: String,
    /// How long sends are remembered.
    retention_ms: i64,
    /// The most entries of a user.
    #[serde(default = "default_max_entries")]
    max_entries: u32,
    sets: Vec<Vec<CapSpec>>,
    batches: Vec<BatchSpec>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct CapSpec {
    /// Length of the window, or of the calendar period.
    window_ms: i64,
    /// Calendar periods begin at multiples of the window, moved by so much; sliding where absent.
    calendar_offset_ms: Option<i64>,
    limit: u32,
    channels: Option<Vec<String>>,
    categories: Option<Vec<String>>,
    #[serde(default)]
    each_campaign: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BatchSpec {
    /// How far the clock has moved since the batch before.
    moved_ms: i64,
    requests: Vec<RequestSpec>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RequestSpec {
    user: u32,
    id: u32,
    origin: u32,
    channel: Option<String>,
    category: Option<String>,
    campaign: Option<String>,
    cost: u8,
    set: usize,
    #[serde(default)]
    always: bool,
}

fn default_max_entries() -> u32 {
    MAX_ENTRIES
}

impl Case {
    fn bounds(&self) -> HistoryBounds {
        HistoryBounds { retention_ms: self.retention_ms, max_entries: self.max_entries }
    }

    /// With a clock that moves little, so that nothing becomes too old.
    fn without_jumps(mut self) -> Self {
        self.batches.iter_mut().for_each(|batch| batch.moved_ms %= 60_000);
        self
    }

    fn decisions(&self) -> usize {
        self.batches.iter().map(|batch| batch.requests.len()).sum()
    }

    /// The batches, for users (and names) that nobody else has.
    fn run<'a>(&'a self, users: &str) -> impl Iterator<Item = AdmitBatch<'a>> {
        let mut now = Time::default().plus(START_MS);
        self.batches.iter().map(move |batch| {
            now = now.plus(batch.moved_ms);
            let set = |caps: &Vec<CapSpec>| caps.iter().map(|cap| cap.query(now)).collect();
            AdmitBatch {
                now,
                cap_sets: self.sets.iter().map(set).collect(),
                requests: batch.requests.iter().map(|request| request.request(users)).collect(),
            }
        })
    }
}

impl CapSpec {
    fn query(&self, now: Time) -> CapQuery {
        let window = match self.calendar_offset_ms {
            None => Window::Sliding { length_ms: self.window_ms },
            Some(offset) => {
                let start = (now.millis() - offset).div_euclid(self.window_ms) * self.window_ms + offset;
                let [start, next, after] = [0, 1, 2].map(|n| Time::default().plus(start + n * self.window_ms));
                Window::Calendar { start, next, after }
            }
        };
        let set = |names: &Option<Vec<String>>| names.clone().map(|names| names.into_iter().collect());
        let filter = Filter { channels: set(&self.channels), categories: set(&self.categories) };
        let scope = if self.each_campaign { Scope::SameCampaign } else { Scope::Every };
        CapQuery { window, limit: self.limit, filter: Arc::new(filter), scope }
    }
}

impl RequestSpec {
    fn request(&self, users: &str) -> AdmitRequest<'_> {
        let class = ClassNames {
            channel: self.channel.as_deref(),
            category: self.category.as_deref(),
            campaign: self.campaign.as_deref(),
        };
        AdmitRequest {
            user: UserHash::of(&format!("{users}-{}", self.user)),
            id: IdHash::of(&self.id.to_string()),
            origin: OriginMark(self.origin),
            class,
            cost: self.cost,
            cap_set: self.set,
            record: if self.always { RecordWhen::Always } else { RecordWhen::IfAllowed },
        }
    }
}

/// `decide` itself on histories that are packed and unpacked each time, with numbers of its own.
struct Model {
    bounds: HistoryBounds,
    kinds: KindTable,
    campaigns: Vec<String>,
    histories: HashMap<UserHash, Vec<u8>>,
    /// Users who were swept: the embedded store, which never does that, may answer them otherwise.
    swept: HashSet<UserHash>,
}

/// When each shard's one key was swept last.
type Marks = HashMap<u16, Time>;

/// How many decisions the script's fast path can take, as far as its header says, and how many need the slow one.
#[derive(Debug, Default)]
struct Ways {
    allowed: usize,
    denied: usize,
    /// Decisions of the fast path with a cap that is not a sliding one on everything.
    filtered: usize,
    slow: usize,
    /// Decisions that dropped entries because there were too many.
    dropped: usize,
    swept: usize,
}

impl Ways {
    fn count(&mut self, (packed, send): (&[u8], &Send), caps: &[Cap], (now, kept_ms): (Time, i64), answer: Answer) {
        let entries = unpack(packed).unwrap();
        let plain = |cap: &Cap| {
            matches!(cap.window, Window::Sliding { .. }) && cap.kinds.is_none() && cap.scope == Scope::Every
        };
        let simple = send.cost == 1 && caps.len() <= 8 && packed.len().is_multiple_of(20) && packed.len() <= 2560;
        let alive = |entry: &&Entry| entry.at > now.plus(-kept_ms);
        let known = entries.iter().filter(alive).any(|entry| entry.id == send.id);
        let fast = simple && !known && entries.iter().all(|entry| entry.at <= now);
        match answer.verdict {
            AdmitVerdict::Allowed | AdmitVerdict::Denied { .. } if fast && !caps.iter().all(plain) => {
                self.filtered += 1
            }
            AdmitVerdict::Allowed if fast => self.allowed += 1,
            AdmitVerdict::Denied { .. } if fast => self.denied += 1,
            AdmitVerdict::Allowed | AdmitVerdict::Denied { .. } | AdmitVerdict::Replayed | AdmitVerdict::Duplicate => {
                self.slow += 1
            }
        }
    }
}

impl Model {
    fn admit(&mut self, batch: &AdmitBatch<'_>, layout: Layout, marks: &mut Marks, ways: &mut Ways) -> Vec<Answer> {
        let (now, retention_ms) = (batch.now, self.bounds.retention_ms);
        let since_2020 = now.millis() - EPOCH_MS;
        let block = now.plus(-since_2020.rem_euclid(retention_ms));
        let mut renewed = BTreeSet::new();
        let sends: Vec<Send> = batch.requests.iter().map(|request| self.send(request)).collect();
        let cap = |query: &CapQuery| Cap {
            window: query.window,
            limit: query.limit,
            kinds: self.kinds.matching(&query.filter),
            scope: query.scope,
        };
        let sets: Vec<Vec<Cap>> = batch.cap_sets.iter().map(|caps| caps.iter().map(cap).collect()).collect();
        let decide_one = |(request, send): (&AdmitRequest<'_>, &Send)| {
            let packed = self.histories.entry(request.user).or_default();
            let mut history: Vec<Entry> = unpack(packed).unwrap();
            let near = history.iter().rev().map(|entry| entry.at).find(|at| *at <= now.plus(MAX_AHEAD_MS));
            let mut longer = history.clone();
            let answer = decide(&mut history, send, &sets[request.cap_set], now, self.bounds);
            decide(&mut longer, send, &sets[request.cap_set], now, retention_ms.into());
            ways.dropped += usize::from(longer.len() > history.len());
            ways.count((packed, send), &sets[request.cap_set], (now, retention_ms), answer);
            let recorded = match answer.verdict {
                AdmitVerdict::Allowed => true,
                AdmitVerdict::Replayed => false,
                AdmitVerdict::Duplicate | AdmitVerdict::Denied { .. } => send.record == RecordWhen::Always,
            };
            if recorded && near.is_none_or(|near| near < block || near <= answer.at.plus(-retention_ms)) {
                renewed.insert(layout.place(request.user).shard);
            }
            assert!(history.is_sorted_by_key(|entry| entry.at));
            *packed = pack(&history);
            answer
        };
        let answers = batch.requests.iter().zip(&sends).map(decide_one).collect();
        for shard in renewed {
            if marks.get(&shard).is_some_and(|mark| (block..=now.plus(MAX_AHEAD_MS)).contains(mark)) {
                continue;
            }
            marks.insert(shard, now);
            let too_old = |packed: &[u8]| {
                unpack(packed).unwrap().last().is_some_and(|entry: &Entry| entry.at <= now.plus(-retention_ms))
            };
            let gone = self.histories.extract_if(|user, packed| layout.place(*user).shard == shard && too_old(packed));
            self.swept.extend(gone.map(|(user, _)| user));
        }
        answers
    }

    fn send(&mut self, request: &AdmitRequest<'_>) -> Send {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let names: KindNames = (owned(request.class.channel), owned(request.class.category));
        let kind = self.kinds.number(&names).unwrap_or_else(|| self.kinds.push(Some(names)));
        let campaign = request.class.campaign.map_or(Campaign::NONE, |name| {
            let known = self.campaigns.iter().position(|known| known == name);
            let place = known.unwrap_or_else(|| {
                self.campaigns.push(name.to_owned());
                self.campaigns.len() - 1
            });
            Campaign(u32::try_from(place + 1).unwrap())
        });
        Send { id: request.id, origin: request.origin, kind, campaign, cost: request.cost, record: request.record }
    }
}

/// Two lanes' stores on one server and on a cluster, and their marks.
type OfBounds = ([Vec<RedisStore>; 2], Marks);

/// The stores on Redis, a keyspace for each retention, two lanes each; and how cases were decided.
#[derive(Default)]
struct Stores {
    by_bounds: HashMap<(i64, u32), OfBounds>,
    ways: Ways,
}

async fn of_bounds(all: &mut HashMap<(i64, u32), OfBounds>, bounds: HistoryBounds) -> &mut OfBounds {
    match all.entry((bounds.retention_ms, bounds.max_entries)) {
        hash_map::Entry::Occupied(stores) => stores.into_mut(),
        hash_map::Entry::Vacant(place) => {
            let single = lanes(&[Stack::shared().redis()], bounds).await;
            let cluster = lanes(Stack::shared().redis_cluster(), bounds).await;
            place.insert(([single, cluster], Marks::default()))
        }
    }
}

async fn lanes<S: AsRef<str>>(urls: &[S], bounds: HistoryBounds) -> Vec<RedisStore> {
    let mut options = options(urls);
    options.history_ms = bounds.retention_ms;
    // Few shards for one of them, so that users meet; and one key a shard.
    if bounds.retention_ms == DAY_MS {
        options.shards = 2;
    }
    options.users = options.shards.into();
    options.max_entries = bounds.max_entries;
    let opened = opened(&options).await.unwrap();
    (0..2).map(|_| store(&options, &opened)).collect()
}

const EMBEDDED: &str = "the embedded store";

/// Runs a case through all four. The error names the first difference.
async fn compare(case: &Case, stores: &mut Stores) -> Result<(), String> {
    let users = unique("u");
    let bounds = case.bounds();
    let (kinds, campaigns, histories, swept) = Default::default();
    let mut model = Model { bounds, kinds, campaigns, histories, swept };
    let mut embedded = EmbeddedStore::new(bounds);
    let ([single, cluster], marks) = of_bounds(&mut stores.by_bounds, bounds).await;
    let layout = single[0].keyspace().meta().layout;
    assert_eq!(layout.buckets, 1, "a call has one key, as the model takes it");
    for (number, batch) in case.run(&users).enumerate() {
        // Those of before the batch: a call decides before it sweeps.
        let swept = model.swept.clone();
        let expected = model.admit(&batch, layout, marks, &mut stores.ways);
        let lane = number % 2;
        let others = [
            (EMBEDDED, admit(&mut embedded, &batch).await),
            ("Redis", admit(&mut single[lane], &batch).await),
            ("the cluster", admit(&mut cluster[lane], &batch).await),
        ];
        for (who, (answers, asked)) in others {
            asked.unwrap();
            for (place, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
                let knows = who != EMBEDDED || !swept.contains(&batch.requests[place].user);
                if knows && *answer != Some(*expected) {
                    return Err(format!("batch {number}, ask {place}: {who}: {answer:?}, the reference: {expected:?}"));
                }
            }
        }
    }
    stores.ways.swept += model.swept.len();
    Ok(())
}

fn name(names: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(0.8, prop::sample::select(names).prop_map(str::to_owned))
}

fn some_names(names: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<String>>> {
    let some = prop::sample::subsequence(names.to_vec(), 0..=names.len());
    prop::option::weighted(0.4, some.prop_map(|names| names.into_iter().map(str::to_owned).collect()))
}

const CHANNELS: &[&str] = &["push", "email", "sms", "", "pu\0sh"];
const CATEGORIES: &[&str] = &["promo", "partner", "push", "news", "digest", "["];
const CAMPAIGNS: &[&str] = &["autumn", "winter", "", "epoch", "="];
const WINDOWS_MS: &[i64] = &[1, 2, 1000, 60_000, 300_000, 3_600_000, DAY_MS, 7 * DAY_MS, 8 * DAY_MS, 20 * DAY_MS];

fn a_cap() -> impl Strategy<Value = CapSpec> {
    let limit = prop_oneof![Just(0), Just(1), 1_u32..6, 1_u32..300, Just(u32::MAX)];
    let calendar = prop::option::weighted(0.4, prop::sample::select(vec![0, 1, -1, 3_600_000, DAY_MS / 2]));
    let names = (some_names(CHANNELS), some_names(CATEGORIES));
    let cap = (a_simple_cap(), limit, calendar, names, prop::bool::weighted(0.3));
    cap.prop_map(|(cap, limit, calendar_offset_ms, (channels, categories), each_campaign)| CapSpec {
        limit,
        calendar_offset_ms,
        channels,
        categories,
        each_campaign,
        ..cap
    })
}

/// A cap for which the fast path needs one look.
fn a_simple_cap() -> impl Strategy<Value = CapSpec> {
    let limit = prop_oneof![1 => Just(0), 6 => 1_u32..6, 2 => 6_u32..40, 1 => Just(u32::MAX)];
    let simple = |(window_ms, limit)| CapSpec { window_ms, limit, ..CapSpec::default() };
    (prop::sample::select(WINDOWS_MS), limit).prop_map(simple)
}

fn an_ask(sets: usize, other_costs: u32, users: u32) -> impl Strategy<Value = RequestSpec> {
    let cost = prop_oneof![200 => Just(1), other_costs => 1_u8..4, other_costs => Just(255)];
    let class = (name(CHANNELS), name(CATEGORIES), name(CAMPAIGNS));
    // Few ids and origins: replays and duplicates are frequent.
    let origin = prop::sample::select([0, 1, 2, OriginMark::NO_RECORD.0].as_slice());
    let ids = prop_oneof![(0_u32..12, origin), (0_u32..100_000, Just(0_u32))];
    (0..users, ids, class, cost, 0..sets, prop::bool::weighted(0.1)).prop_map(
        |(user, (id, origin), (channel, category, campaign), cost, set, always)| RequestSpec {
            user,
            id,
            origin,
            channel,
            category,
            campaign,
            cost,
            set,
            always,
        },
    )
}

fn a_step() -> impl Strategy<Value = i64> {
    let edges: Vec<i64> = WINDOWS_MS.iter().flat_map(|window| [window - 1, *window, window + 1]).collect();
    let back: Vec<i64> = [1, 1000, 299_999, 300_000, 300_001, 3_600_000, DAY_MS, 9 * DAY_MS].map(|back| -back).into();
    prop_oneof![
        3 => Just(0),
        3 => 0_i64..2000,
        3 => 0_i64..DAY_MS,
        2 => prop::sample::select(edges),
        2 => prop::sample::select(back),
        1 => -400_000_i64..400_000,
    ]
}

/// How many caps the sets of a case have.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![9 => 0..4_usize, 1 => Just(100)], 1..4)
}

/// Sets of anything, and sets that the fast path mostly decides, with costs to match.
fn a_case() -> impl Strategy<Value = Case> {
    let any = lengths().prop_flat_map(|lengths| {
        lengths.into_iter().map(|length| prop::collection::vec(a_cap(), length)).collect::<Vec<_>>()
    });
    let simple = || {
        lengths().prop_flat_map(|lengths| {
            let set = |length: usize| prop::collection::vec(a_simple_cap(), length.min(9));
            lengths.into_iter().map(set).collect::<Vec<_>>()
        })
    };
    // Caps with filters, calendar windows and campaigns, for the fast path's walk.
    let filtered = lengths().prop_flat_map(|lengths| {
        let cap = || {
            let limited = (a_cap(), 1_u32..5).prop_map(|(cap, limit)| CapSpec { limit, ..cap });
            prop_oneof![3 => limited, 1 => a_simple_cap()]
        };
        let set = |length: usize| prop::collection::vec(cap(), length.min(9));
        lengths.into_iter().map(set).collect::<Vec<_>>()
    });
    // Few users, and a set without caps: histories that grow too long.
    let long = prop::collection::vec(a_simple_cap(), 1..3).prop_map(|caps| vec![Vec::new(), caps]);
    prop_oneof![
        2 => any.prop_flat_map(|sets| a_case_of(sets, 50, (4, MAX_ENTRIES))),
        3 => simple().prop_flat_map(|sets| a_case_of(sets, 1, (4, MAX_ENTRIES))),
        2 => filtered.prop_flat_map(|sets| a_case_of(sets, 1, (4, MAX_ENTRIES))),
        // Many users; some do not return for long.
        1 => simple().prop_flat_map(|sets| a_case_of(sets, 1, (24, MAX_ENTRIES))),
        4 => long.prop_flat_map(|sets| a_case_of(sets, 5, (1, FEW_ENTRIES)).prop_map(Case::without_jumps)),
    ]
}

fn a_case_of(sets: Vec<Vec<CapSpec>>, costs: u32, (users, max_entries): (u32, u32)) -> impl Strategy<Value = Case> {
    let batch = (a_step(), prop::collection::vec(an_ask(sets.len(), costs, users), 1..48))
        .prop_map(|(moved_ms, requests)| BatchSpec { moved_ms, requests });
    let retention = prop::sample::select(vec![8 * DAY_MS, DAY_MS]);
    (retention, prop::collection::vec(batch, 1..40)).prop_map(move |(retention_ms, batches)| Case {
        about: "found by a random search".to_owned(),
        retention_ms,
        max_entries,
        sets: sets.clone(),
        batches,
    })
}

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions")
}

#[test]
fn reference_embedded_redis_and_cluster_decide_alike() {
    compare_random_cases();
}

#[test]
#[ignore = "as many cases again: cargo xtask ci --extent everything"]
fn reference_embedded_redis_and_cluster_decide_other_cases_alike() {
    compare_random_cases();
}

fn compare_random_cases() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stores = std::cell::RefCell::new(Stores::default());
    let decisions = AtomicUsize::new(0);
    let config = Config { cases: 1, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    while decisions.load(Relaxed) < DECISIONS {
        let outcome = TestRunner::new(config.clone()).run(&a_case(), |case| {
            decisions.fetch_add(case.decisions(), Relaxed);
            runtime.block_on(compare(&case, &mut stores.borrow_mut())).map_err(TestCaseError::fail)
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, case)) => {
                let text = serde_json::to_string_pretty(&case).unwrap();
                let file = regressions().join(format!("{}.json", unique("found")));
                std::fs::write(&file, &text).unwrap();
                panic!("{reason}\nthe smallest case that shows it is in {}:\n{text}", file.display());
            }
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
    }
    let ways = stores.into_inner().ways;
    let least = ways.allowed.min(ways.denied).min(ways.filtered).min(ways.slow);
    assert!(least > DECISIONS / 50, "one of the ways to decide is hardly met: {ways:?}");
    assert!(ways.dropped > DECISIONS / 1_000, "histories are hardly ever too long: {ways:?}");
    assert!(ways.swept > 2, "users are hardly ever swept: {ways:?}");
}

#[test]
fn cases_found_before_stay_right() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut stores = Stores::default();
    let mut seen = 0;
    let mut files: Vec<PathBuf> = std::fs::read_dir(regressions()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "json")) {
        let text = std::fs::read_to_string(file).unwrap();
        let case: Case = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let compared = runtime.block_on(compare(&case, &mut stores));
        compared.unwrap_or_else(|difference| panic!("{} ({}): {difference}", file.display(), case.about));
        seen += 1;
    }
    assert!(seen > 0, "{} holds no case", regressions().display());
}
