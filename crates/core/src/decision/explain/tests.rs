//! Random histories and policies: what is said to be allowed from some moment on is allowed then by `decide`, and not
//! a millisecond before.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::*;
use crate::{
    basis::shard::{IdHash, OriginMark, UserHash},
    history::decide::{AdmitVerdict, RecordWhen, Send},
    intent::class::{ClassNames, Filter, KindNames, KindTable},
    policy::{Action, CapWindow, IntentFacts, Period, Policy, PolicyEval},
};

static UNCAPPED: LazyLock<Policy> = LazyLock::new(|| Policy::uncapped(""));

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 2026-03-25T00:00:00Z: a few days before Berlin's clocks are put forward, and some months before they go back.
const START_MS: i64 = 1_774_396_800_000;

const CHANNELS: [Option<&str>; 3] = [None, Some("push"), Some("email")];
const CATEGORIES: [Option<&str>; 3] = [None, Some("promo"), Some("news")];
/// Number 3 is in no history.
const CAMPAIGNS: [Option<&str>; 4] = [None, Some("autumn"), Some("winter"), Some("never sent")];
const LENGTHS_MS: [i64; 7] = [1, 1000, 300_000, HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS];

/// A store's numbers: all kinds but none at all, in order.
fn kinds() -> KindTable {
    let all = CHANNELS.iter().flat_map(|channel| CATEGORIES.map(|category| names(*channel, category)));
    KindTable::new(all.skip(1).collect())
}

fn names(channel: Option<&str>, category: Option<&str>) -> KindNames {
    (channel.map(str::to_owned), category.map(str::to_owned))
}

fn classes() -> impl Iterator<Item = ClassNames<'static>> {
    let class = |(channel, category), campaign| ClassNames { channel, category, campaign };
    let kinds = CHANNELS.into_iter().flat_map(|channel| CATEGORIES.map(|category| (channel, category)));
    kinds.flat_map(move |kind| CAMPAIGNS.map(|campaign| class(kind, campaign)))
}

fn campaign_of(name: Option<&str>) -> Campaign {
    Campaign(CAMPAIGNS.iter().position(|known| *known == name).and_then(|place| place.try_into().ok()).unwrap())
}

#[derive(Debug, Clone)]
struct Case {
    now: Time,
    zone: Zone,
    caps: Vec<Cap>,
    entries: Vec<Entry>,
}

impl Case {
    fn policy(&self, caps: &[Cap]) -> Arc<Policy> {
        let (timezone, default) = (self.zone.clone(), Arc::new(Caps::Limited(caps.to_vec())));
        Arc::new(Policy { timezone, default, ..UNCAPPED.clone() })
    }

    /// As short as a policy of these caps may have it.
    fn retention_ms(&self) -> i64 {
        self.policy(&self.caps).longest_window_ms().max(1)
    }

    fn history(&self) -> NamedHistory {
        let campaign = |campaign: Campaign| (*CAMPAIGNS.get(usize::try_from(campaign.0).ok()?)?).map(str::to_owned);
        NamedHistory::new(self.entries.clone(), &kinds(), campaign, self.retention_ms())
    }

    /// What a worker with this clock makes of an intent: policy, store numbers, `decide`.
    fn decided(&self, caps: &[Cap], class: ClassNames<'_>, cost: u8, clock: Time) -> Answer {
        let mut eval = PolicyEval::new(self.policy(caps), Arc::default(), clock);
        let cap_set = eval.route(&IntentFacts { class, ..IntentFacts::default() }).unwrap();
        let query = |query: &CapQuery| query.counting(kinds().matching(&query.filter));
        let set: Vec<decide::Cap> = eval.take_cap_sets()[cap_set].iter().map(query).collect();
        let (id, origin, campaign) = (IdHash(0), OriginMark(0), campaign_of(class.campaign));
        let send = Send { id, origin, kind: Kind::NONE, campaign, cost, record: RecordWhen::IfAllowed };
        decide(&mut self.entries.clone(), &send, &set, clock, self.retention_ms().into())
    }

    /// How many of the classes a worker with this clock would let through.
    fn allowed(&self, caps: &[Cap], clock: Time) -> usize {
        classes().filter(|class| self.decided(caps, *class, 1, clock).verdict == AdmitVerdict::Allowed).count()
    }

    fn agrees(&self, caps: &[Cap], next: Next) -> Result<(), TestCaseError> {
        let all = classes().count();
        match next {
            Next::Now => prop_assert_eq!(self.allowed(caps, self.now), all, "now"),
            Next::At(at) => {
                prop_assert!(at > self.now);
                prop_assert_eq!(self.allowed(caps, at), all, "at {}", at);
                prop_assert!(self.allowed(caps, at.plus(-1)) < all, "before {}", at);
            }
            Next::Never => {
                prop_assert!(self.allowed(caps, self.now.plus(1000 * DAY_MS)) < all, "never");
            }
        }
        Ok(())
    }

    /// What a cap has used, by names.
    fn used(&self, cap: &Cap) -> u32 {
        let kinds = kinds();
        let (at, _) = judged_at(&self.entries, self.now);
        let first = cap.window.at(&self.zone, self.now).first(at);
        let speaks_of = |entry: &&Entry| {
            let (channel, category) = kinds.names(entry.kind).cloned().unwrap_or_default();
            entry.kind == Kind::OVERFLOW || cap.filter.matches(channel.as_deref(), category.as_deref())
        };
        let counted = || self.entries.iter().filter(|entry| entry.at >= first).filter(speaks_of);
        let cost = |entry: &Entry| u32::from(entry.cost);
        match cap.scope {
            Scope::Every => counted().map(cost).sum(),
            Scope::SameCampaign => {
                let of = |name: &Option<&str>| {
                    let ours = [campaign_of(*name), Campaign::OVERFLOW];
                    counted().filter(|entry| ours.contains(&entry.campaign)).map(cost).sum()
                };
                CAMPAIGNS.iter().map(of).max().unwrap()
            }
        }
    }
}

fn a_cap() -> impl Strategy<Value = Cap> {
    let sliding = prop::sample::select(&LENGTHS_MS[..])
        .prop_map(|length_ms| CapWindow::Sliding { length_ms, text: format!("{length_ms}ms").into() });
    let calendar = prop::sample::select(&Period::ALL[..]).prop_map(CapWindow::Per);
    let some = |names: &'static [&'static str]| {
        let some = prop::sample::subsequence(names, 1..=names.len());
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        prop::option::weighted(0.4, some.prop_map(owned))
    };
    let filter = (some(&["push", "email"]), some(&["promo", "news"]));
    let scope = prop_oneof![2 => Just(Scope::Every), 1 => Just(Scope::SameCampaign)];
    (0_u32..6, prop_oneof![2 => sliding, 1 => calendar], filter, scope).prop_map(
        |(limit, window, (channels, categories), scope)| Cap {
            name: "cap".into(),
            limit,
            window,
            filter: Arc::new(Filter { channels, categories }),
            scope,
            action: Action::Suppress,
        },
    )
}

/// When an entry was made, from now: at the edges of windows and of what is ahead, and anywhere.
fn an_offset() -> impl Strategy<Value = i64> {
    let windows = LENGTHS_MS.iter().flat_map(|length| [-length - 1, -length, 1 - length]);
    let ahead = [0, 1, MAX_AHEAD_MS - 1, MAX_AHEAD_MS, MAX_AHEAD_MS + 1, HOUR_MS, 2 * DAY_MS];
    let edges: Vec<i64> = windows.chain(ahead).collect();
    prop_oneof![
        2 => prop::sample::select(edges),
        3 => -2 * DAY_MS..0,
        2 => -40 * DAY_MS..0,
        1 => 0..10 * DAY_MS,
    ]
}

fn a_case() -> impl Strategy<Value = Case> {
    let zone = prop::sample::select(vec!["UTC", "Asia/Singapore", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"]);
    let entry = (an_offset(), 0_u16..=9, 0_u32..4, 1_u8..4, 0_u64..3);
    let entries = prop::collection::vec(entry, 0..12);
    (0..300 * DAY_MS, zone, prop::collection::vec(a_cap(), 0..4), entries).prop_map(|(moved, zone, caps, entries)| {
        let now = Time::default().plus(START_MS + moved);
        let entry = |(offset, kind, campaign, cost, id)| Entry {
            at: now.plus(offset),
            id: IdHash(id + 1),
            origin: OriginMark(1),
            // The last of each are those that came when the tables were full.
            kind: if kind == 9 { Kind::OVERFLOW } else { Kind(kind) },
            campaign: if campaign == 3 { Campaign::OVERFLOW } else { Campaign(campaign) },
            cost,
        };
        let mut entries: Vec<Entry> = entries.into_iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.at);
        Case { now, zone: Zone::named(zone).unwrap(), caps, entries }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_send_is_allowed_from_the_moment_that_is_said_and_not_a_millisecond_before(case in a_case()) {
        let history = case.history();
        let moment = UserMoment { history: &history, zone: &case.zone, now: case.now };
        let caps = Caps::Limited(case.caps.clone());
        let standing = moment.standing(&caps);
        case.agrees(&case.caps, standing.next)?;
        prop_assert_eq!(moment.standing(&Caps::Unlimited).next, Next::Now);
        match standing.soonest {
            Next::Now => prop_assert!(case.allowed(&case.caps, case.now) > 0),
            Next::At(at) => {
                prop_assert!(case.allowed(&case.caps, at) > 0);
                prop_assert_eq!(case.allowed(&case.caps, at.plus(-1)), 0);
            }
            Next::Never => prop_assert_eq!(case.allowed(&case.caps, case.now.plus(1000 * DAY_MS)), 0),
        }
        for (cap, found) in case.caps.iter().zip(&standing.caps) {
            case.agrees(std::slice::from_ref(cap), found.next)?;
            prop_assert_eq!(found.used, case.used(cap));
            for one in &found.campaigns {
                let name = history.campaign(one.campaign);
                let fits = |clock| {
                    let mut verdicts = classes()
                        .filter(|class| class.campaign == name)
                        .map(|class| case.decided(std::slice::from_ref(cap), class, 1, clock).verdict);
                    verdicts.all(|verdict| verdict == AdmitVerdict::Allowed)
                };
                match one.next {
                    Next::Now => prop_assert!(fits(case.now)),
                    Next::At(at) => prop_assert!(fits(at) && !fits(at.plus(-1))),
                    Next::Never => prop_assert!(!fits(case.now.plus(1000 * DAY_MS))),
                }
            }
        }
    }

    #[test]
    fn what_would_become_of_an_intent_is_what_a_worker_makes_of_it(
        case in a_case(), class in 0..36_usize, cost in 1_u8..7, id in 0_u64..4, origin in 0_u32..2
    ) {
        let class = classes().nth(class).unwrap();
        let history = case.history();
        let mut eval = PolicyEval::new(case.policy(&case.caps), Arc::default(), case.now);
        let cap_set = eval.route(&IntentFacts { class, ..IntentFacts::default() }).unwrap();
        let sets = eval.take_cap_sets();
        let (id, origin) = (IdHash(id), OriginMark(origin));
        let request = AdmitRequest { user: UserHash(0), id, origin, class, cost, cap_set, record: RecordWhen::IfAllowed };
        let answer = would(&history, &request, &sets[cap_set], case.now);
        let mut expected = case.decided(&case.caps, class, cost, case.now);
        let alive = |entry: &&Entry| entry.at >= judged_at(&case.entries, case.now).0.plus(1 - case.retention_ms());
        let mut same_id = case.entries.iter().filter(|entry| entry.id == id).filter(alive);
        if let Some(first) = same_id.next() {
            expected.verdict = if origin == OriginMark(1) { AdmitVerdict::Replayed } else { AdmitVerdict::Duplicate };
            expected.at = if origin == OriginMark(1) { first.at } else { expected.at };
        }
        prop_assert_eq!(answer, expected);
    }
}
