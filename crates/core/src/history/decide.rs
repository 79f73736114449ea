//! The decision: history + caps + intent + time -> answer. The reference that `lua/admit.lua` must equal.

use std::collections::BTreeSet;

use crate::{
    basis::{
        shard::{IdHash, OriginMark},
        time::Time,
        window::Window,
    },
    history::{Entry, HistoryBounds},
    intent::class::{Campaign, Kind},
};

/// How far ahead of the clock a user's newest entry may be and still pull the user's time forward, in
/// milliseconds (docs/policy.md, "Time").
pub const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

/// Whether a cap counts the sends of all campaigns or of the intent's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Every,
    /// Only sends of this intent's campaign; intents without one are one campaign.
    SameCampaign,
}

/// When a send is written into the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordWhen {
    IfAllowed,
    /// Always (shadow mode: everything is sent, so everything is recorded).
    Always,
}

/// One cap, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    pub window: Window,
    /// The most that may be sent in it, in costs.
    pub limit: u32,
    /// The kinds that count, `None` for all.
    pub kinds: Option<BTreeSet<Kind>>,
    pub scope: Scope,
}

impl Cap {
    pub fn counts(&self, entry: &Entry, campaign: Campaign) -> bool {
        let kind = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&entry.kind));
        let ours = match self.scope {
            Scope::Every => true,
            Scope::SameCampaign => [campaign, Campaign::OVERFLOW].contains(&entry.campaign),
        };
        kind && ours
    }
}

/// A send that asks to be let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Send {
    pub id: IdHash,
    pub origin: OriginMark,
    pub kind: Kind,
    pub campaign: Campaign,
    /// What it takes, 1 to 255.
    pub cost: u8,
    pub record: RecordWhen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitVerdict {
    /// Allowed now, and recorded.
    Allowed,
    /// It was allowed before: the same id from the same place.
    Replayed,
    /// Its id was allowed before, from another place.
    Duplicate,
    Denied {
        /// Which of the caps asked for, from 0. Where several deny, the one that frees last; of equals the first.
        cap: u8,
        /// What the window holds already, in costs.
        used: u32,
        /// The entry that has to leave the window before this send fits; `None` where it never does.
        blocking: Option<Time>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub verdict: AdmitVerdict,
    /// The time it was judged by; for a replay the time it was allowed at.
    pub at: Time,
    /// Whether the history holds an entry more than [`MAX_AHEAD_MS`] ahead of the clock.
    pub ahead: bool,
}

/// Decides one send of a user and records it where it should be.
///
/// `history` is the user's, ascending by time; entries that are `bounds.retention_ms` old or older are as good as
/// gone, and a write cuts them off, and the oldest of the rest where there are more than `bounds.max_entries`. `now` is the
/// batch's clock.
///
/// A cap on everything forgets nothing by the latter, as long as its limit is not above that number: an entry costs 1 at the
/// least, so where entries of its window were dropped, those that are left cost as much as its limit or more, and it denies
/// as it would have. A cap with a filter or `each` may forget entries that were dropped, and so may the search for duplicates
/// and replays.
pub fn decide(history: &mut Vec<Entry>, send: &Send, caps: &[Cap], now: Time, bounds: HistoryBounds) -> Answer {
    let (at, ahead) = judged_at(history, now);
    let first_alive = history.len() - alive(history, at, bounds.retention_ms).len();
    if let Some(entry) =
        history[first_alive..].iter_mut().find(|entry| (entry.id, entry.origin) == (send.id, send.origin))
    {
        // The same record has the same names. They have other numbers now where their tables were lost before it was committed.
        if send.origin != OriginMark::NO_RECORD {
            (entry.kind, entry.campaign) = (send.kind, send.campaign);
        }
        return Answer { verdict: AdmitVerdict::Replayed, at: entry.at, ahead };
    }
    let alive = &history[first_alive..];
    let same_id = || alive.iter().filter(|entry| entry.id == send.id);
    let verdict = if same_id().next().is_some() { AdmitVerdict::Duplicate } else { judge(alive, send, caps, at) };
    if verdict == AdmitVerdict::Allowed || send.record == RecordWhen::Always {
        write(history, send, at, bounds);
    }
    Answer { verdict, at, ahead }
}

/// The time that a user's sends are judged by: the later of the clock and the newest entry, unless that is more than
/// [`MAX_AHEAD_MS`] ahead of the clock; and whether there is such an entry.
pub fn judged_at(history: &[Entry], now: Time) -> (Time, bool) {
    let horizon = now.plus(MAX_AHEAD_MS);
    let newest = history.iter().rev().map(|entry| entry.at).find(|&at| at <= horizon);
    let ahead = history.last().is_some_and(|entry| entry.at > horizon);
    (newest.map_or(now, |newest| newest.max(now)), ahead)
}

/// The entries that are not yet as good as gone for a send judged at `at`.
pub fn alive(history: &[Entry], at: Time, retention_ms: i64) -> &[Entry] {
    &history[history.partition_point(|entry| entry.at < kept_from(at, retention_ms))..]
}

fn kept_from(at: Time, retention_ms: i64) -> Time {
    at.plus(1 - retention_ms)
}

/// Whether a cap has room for a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Free,
    /// Not before this entry has left the window.
    Behind(Time),
    Never,
}

impl Cap {
    /// What the window holds at `at` of what counts for this campaign, in costs, and whether a send of `cost` fits in.
    pub fn weigh(&self, alive: &[Entry], campaign: Campaign, cost: u8, at: Time) -> (u32, Room) {
        let first = self.window.first(at);
        let counted = || alive.iter().filter(|entry| entry.at >= first && self.counts(entry, campaign));
        let used: u32 = counted().map(|entry| u32::from(entry.cost)).sum();
        let cost = u32::from(cost);
        if used + cost <= self.limit {
            return (used, Room::Free);
        }
        if cost > self.limit {
            return (used, Room::Never);
        }
        let mut left = used;
        let blocking = counted().find(|entry| {
            left -= u32::from(entry.cost);
            left + cost <= self.limit
        });
        (used, blocking.map_or(Room::Never, |entry| Room::Behind(entry.at)))
    }
}

/// The caps alone: allowed, or denied by the cap that frees last.
fn judge(alive: &[Entry], send: &Send, caps: &[Cap], at: Time) -> AdmitVerdict {
    let mut worst: Option<((bool, Option<Time>), AdmitVerdict)> = None;
    for (cap, index) in caps.iter().zip(0_u8..) {
        let (used, room) = cap.weigh(alive, send.campaign, send.cost, at);
        let blocking = match room {
            Room::Free => continue,
            Room::Behind(entry) => Some(entry),
            Room::Never => None,
        };
        // Never is later than any time.
        let freed = (blocking.is_none(), blocking.map(|entry| cap.window.freed(entry)));
        if worst.is_none_or(|(worst, _)| freed > worst) {
            worst = Some((freed, AdmitVerdict::Denied { cap: index, used, blocking }));
        }
    }
    worst.map_or(AdmitVerdict::Allowed, |(_, verdict)| verdict)
}

/// Writes a send at its time, behind the entries that are not later, and cuts off what is too old, and too many.
fn write(history: &mut Vec<Entry>, send: &Send, at: Time, bounds: HistoryBounds) {
    let kept_from = kept_from(at, bounds.retention_ms);
    history.retain(|entry| entry.at >= kept_from);
    let Send { id, origin, kind, campaign, cost, record: _ } = *send;
    let place = history.partition_point(|entry| entry.at <= at);
    history.insert(place, Entry { at, id, origin, kind, campaign, cost });
    drop_oldest(history, bounds.max_entries);
}

pub fn drop_oldest(history: &mut Vec<Entry>, max_entries: u32) {
    let too_many = history.len().saturating_sub(usize::try_from(max_entries).unwrap_or(usize::MAX));
    history.drain(..too_many);
}
