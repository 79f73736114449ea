//! The log of activity as a process takes turns at it: the Redis edge as it is, what the checker remembers of it, and around it
//! the planted bugs that need a place there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_core::{
    limit::{
        pressure::{
            activity::{ActivityHash, Minute},
            activity_log::{SharedPlaces, SyncReply, SyncRequest},
        },
        share::TurnNumber,
    },
    ports::{Share, StoreError},
};
use weir_redis::RedisActivityLog;

use super::{
    env::{Env, lock},
    sabotage::Sabotage,
    script::{Item, Stream},
};

/// For how long the planted bug lets the log keep a member, in milliseconds: one that takes all of its turns does not notice.
const SOON_GONE_MS: i64 = 1_500;

/// Who told first that a user was active in a minute, and when the log had answered.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    pub process: u64,
    pub at: Duration,
}

/// What processes told the log, as far as it has not lost it.
#[derive(Debug, Default)]
pub struct Heard {
    pub told: BTreeMap<(ActivityHash, Minute), Told>,
    /// Users of approvals that were replayed: they took no place. From when until when it was asked for.
    pub replayed: Vec<(ActivityHash, Duration, Duration)>,
    /// Users and minutes that failovers and wipes have lost, and places of instances that were forgotten.
    pub lost: usize,
    pub places_lost: u64,
}

pub type SharedHeard = Arc<Mutex<Heard>>;

fn users(item: Option<&Item>) -> BTreeSet<(ActivityHash, Minute)> {
    let Some(Item::Stream(Stream { entries, .. })) = item else { return BTreeSet::new() };
    let of = |fields: &Vec<Vec<u8>>| -> Vec<(ActivityHash, Minute)> {
        let minute = Minute(str::from_utf8(&fields[3]).unwrap().parse().unwrap());
        let hashes = fields[7].as_chunks::<8>().0;
        hashes.iter().map(|hash| (ActivityHash(u64::from_be_bytes(*hash)), minute)).collect()
    };
    entries.values().flat_map(of).collect()
}

/// The places that members hold (`lua/share/members.lua`); none for another key.
fn places(item: Option<&Item>) -> BTreeMap<&[u8], u64> {
    let Some(Item::Hash(hash)) = item else { return BTreeMap::new() };
    let members = hash.iter().filter(|(field, _)| field.starts_with(b"i:weir-"));
    let held = |entry: &Vec<u8>| str::from_utf8(entry).unwrap().split(':').nth(3).unwrap().parse().unwrap();
    members.map(|(instance, entry)| (instance.as_slice(), held(entry))).collect()
}

impl Heard {
    /// A replica with `kept` takes over from a primary with `had`, or nothing is kept.
    pub fn fails_over(&mut self, had: Option<&Item>, kept: Option<&Item>) {
        let kept_users = users(kept);
        for gone in users(had).difference(&kept_users) {
            self.told.remove(gone);
            self.lost += 1;
        }
        let kept_places = places(kept);
        for (instance, held) in places(had) {
            self.places_lost += held.saturating_sub(kept_places.get(instance).copied().unwrap_or(0));
        }
    }
}

/// The log as a process takes turns at it.
pub struct SimActivityLog {
    pub env: Env,
    pub process: u64,
    pub log: RedisActivityLog,
    pub heard: SharedHeard,
}

impl Share<SharedPlaces> for SimActivityLog {
    async fn turn(&mut self, _: &(), number: TurnNumber, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let mut asked = request.clone();
        if self.env.sabotage() == Sabotage::PlaceOutlived {
            asked.member_for_ms = asked.member_for_ms.min(SOON_GONE_MS);
        }
        let outcome = self.log.turn(&(), number, &asked).await;
        match &outcome {
            Ok(_) => {
                let (process, at) = (self.process, self.env.passed());
                let mut heard = lock(&self.heard);
                for active in &request.active {
                    for user in &active.users {
                        heard.told.entry((*user, active.minute)).or_insert(Told { process, at });
                    }
                }
            }
            Err(_) if self.env.sabotage() == Sabotage::SkipTurnRetry => {
                let (cursor, held, part) = (request.cursor.clone(), request.held, request.held);
                return Ok(SyncReply { cursor, held, part, members: 1, ..SyncReply::default() });
            }
            Err(error) => self.env.note(|| format!("process {}: no turn at the log: {error}", self.process)),
        }
        outcome
    }
}
