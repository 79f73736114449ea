//! The intents of a run, and the policy that they are judged by.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;
use weir::{
    domain::{
        class::Filter,
        decide::Scope,
        fields::FieldMap,
        policy::{Cap, CapWindow, Caps, Mode, Policy},
        segment::{SegmentSet, UserIdKind, UserIds},
        zone::Zone,
    },
    worker::{desk::Desk, refresh::Refreshed},
};

use super::{broker::Intent, env::Env};

pub const TOPIC: &str = "intents";
pub const PARTITIONS: u64 = 4;
/// Intents keep coming for so long.
pub const BUSY: Duration = Duration::from_secs(40);

/// What the intent asks for, as the checker needs it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub id: String,
    pub user: String,
    pub push: bool,
}

/// Name, window in milliseconds, limit, and whether only pushes count. Windows are short, so that sends leave them.
pub const CAPS: [(&str, i64, u32, bool); 3] =
    [("short", 8_000, 2, false), ("long", 60_000, 5, false), ("push", 15_000, 1, true)];

/// The intents of each partition.
pub type Logs = Vec<Vec<Arc<Intent>>>;
/// What the intent at a partition and offset asks for.
pub type Asks = BTreeMap<(i32, i64), Ask>;

/// The intents of a run, and what each asks for.
pub fn intents(env: &Env) -> (Logs, Asks) {
    let users = 4 + env.below(24);
    let count = 100 + env.below(200);
    let mut logs: Logs = (0..PARTITIONS).map(|_| Vec::new()).collect();
    let mut asks = BTreeMap::new();
    let mut at = Duration::ZERO;
    for number in 0..count {
        at += env.millis(0, 2 * u64::try_from(BUSY.as_millis()).unwrap() / count);
        let user = env.below(users);
        // Some sends are asked for twice; a user's intents are in one partition, but not all users'.
        let id = if env.chance(30) { format!("i-{}", env.below(number + 1)) } else { format!("i-{number}") };
        let partition = if user == 0 { env.below(PARTITIONS) } else { user % PARTITIONS };
        let push = env.chance(300);
        let mut value = json!({"id": id, "user_id": user});
        if push {
            value["channel"] = "push".into();
        } else if env.chance(300) {
            value["channel"] = "email".into();
            value["campaign"] = format!("c-{}", env.below(5)).into();
        }
        let log = &mut logs[usize::try_from(partition).unwrap()];
        // Gaps, as control records and compaction leave them.
        let gap = if env.chance(50) { 3 } else { 0 };
        let offset = log.last().map_or(0, |last| last.offset + 1) + gap;
        let partition = i32::try_from(partition).unwrap();
        let user = user.to_string();
        asks.insert((partition, offset), Ask { id, user: user.clone(), push });
        log.push(Arc::new(Intent { partition, offset, key: user, value: value.to_string(), at }));
    }
    (logs, asks)
}

pub fn desk() -> Desk {
    let cap = |(name, length_ms, limit, push): (&str, i64, u32, bool)| Cap {
        name: name.into(),
        limit,
        window: CapWindow::Sliding { length_ms, text: format!("{length_ms}ms").into() },
        filter: Arc::new(Filter { channels: push.then(|| ["push".to_owned()].into()), ..Filter::default() }),
        scope: Scope::Every,
    };
    let policy = Policy {
        version: "simulated".to_owned(),
        timezone: Zone::utc(),
        segments: BTreeMap::new(),
        default: Arc::new(Caps::Limited(CAPS.into_iter().map(cap).collect())),
        bypass: Vec::new(),
        on_unavailable: Vec::new(),
        quiet_hours: None,
        max_age_ms: None,
        mode: Mode::Enforce,
    };
    let set = SegmentSet::new("simulated".to_owned(), UserIds::new(UserIdKind::U32, ""), Vec::new());
    Desk {
        topic: TOPIC.into(),
        fields: Arc::new(FieldMap::default()),
        segments: Refreshed::new(Arc::new(set)),
        policy: Refreshed::new(Arc::new(policy)),
    }
}
