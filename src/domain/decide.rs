//! The decision: history + caps + intent + time -> answer. The reference that `lua/admit.lua` must equal.

use std::collections::BTreeSet;

use super::{
    class::{Campaign, Kind},
    history::Entry,
    shard::{IdHash, OriginMark},
    time::Time,
    window::Window,
};

/// How far ahead of the clock a user's newest entry may be and still pull the user's time forward, in
/// milliseconds (contract: 5 minutes).
pub const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

/// Whether a cap counts the sends of all campaigns or of the intent's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All campaigns together.
    Every,
    /// Only sends of this intent's campaign; intents without one are one campaign.
    SameCampaign,
}

/// When a send is written into the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Record {
    /// When it is allowed.
    IfAllowed,
    /// Always (shadow mode: everything is sent, so everything is recorded).
    Always,
}

/// One cap, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// What it looks back over.
    pub window: Window,
    /// The most that may be sent in it, in costs.
    pub limit: u32,
    /// The kinds that count, `None` for all.
    pub kinds: Option<BTreeSet<Kind>>,
    /// Whose sends count.
    pub scope: Scope,
}

impl Cap {
    fn counts(&self, entry: &Entry, campaign: Campaign) -> bool {
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
    /// The intent's id.
    pub id: IdHash,
    /// Where it came from.
    pub origin: OriginMark,
    /// Channel and category.
    pub kind: Kind,
    /// Campaign.
    pub campaign: Campaign,
    /// What it takes, 1 to 255.
    pub cost: u8,
    /// When to record it.
    pub record: Record,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed now, and recorded.
    Allowed,
    /// It was allowed before: the same id from the same place.
    Replayed,
    /// Its id was allowed before, from another place.
    Duplicate,
    /// A cap denies it.
    Denied {
        /// Which of the caps asked for, from 0. Where several deny, the one that frees last; of equals the first.
        cap: u8,
        /// What the window holds already, in costs.
        used: u32,
        /// The entry that has to leave the window before this send fits; `None` where it never does.
        blocking: Option<Time>,
    },
}

/// The answer to one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub verdict: Verdict,
    /// The time it was judged by; for a replay the time it was allowed at.
    pub at: Time,
    /// Whether the history holds an entry more than [`MAX_AHEAD_MS`] ahead of the clock.
    pub ahead: bool,
}

/// Decides one send of a user and records it where it should be.
///
/// `history` is the user's, ascending by time; entries that are `retention_ms` old or older are as good as
/// gone, and a write cuts them off. `now` is the batch's clock.
pub fn decide(history: &mut Vec<Entry>, send: &Send, caps: &[Cap], now: Time, retention_ms: i64) -> Answer {
    let horizon = now.plus(MAX_AHEAD_MS);
    let newest = history.iter().rev().map(|entry| entry.at).find(|&at| at <= horizon);
    let at = newest.map_or(now, |newest| newest.max(now));
    let ahead = history.last().is_some_and(|entry| entry.at > horizon);
    let kept_from = at.plus(1 - retention_ms);
    let alive = &history[history.partition_point(|entry| entry.at < kept_from)..];

    let same_id = || alive.iter().filter(|entry| entry.id == send.id);
    if let Some(entry) = same_id().find(|entry| entry.origin == send.origin) {
        return Answer { verdict: Verdict::Replayed, at: entry.at, ahead };
    }
    let verdict = if same_id().next().is_some() { Verdict::Duplicate } else { judge(alive, send, caps, at) };
    let record = match (verdict, send.record) {
        (Verdict::Allowed, _) | (_, Record::Always) => true,
        (Verdict::Replayed | Verdict::Duplicate | Verdict::Denied { .. }, Record::IfAllowed) => false,
    };
    if record {
        write(history, send, at, kept_from);
    }
    Answer { verdict, at, ahead }
}

/// The caps alone: allowed, or denied by the cap that frees last.
fn judge(alive: &[Entry], send: &Send, caps: &[Cap], at: Time) -> Verdict {
    let mut worst: Option<(Option<Time>, Verdict)> = None;
    for (cap, index) in caps.iter().zip(0_u8..) {
        let first = cap.window.first(at);
        let counted = || alive.iter().filter(|entry| entry.at >= first && cap.counts(entry, send.campaign));
        let used: u32 = counted().map(|entry| u32::from(entry.cost)).sum();
        let cost = u32::from(send.cost);
        if used + cost <= cap.limit {
            continue;
        }
        let mut left = used;
        let blocking = (cost <= cap.limit)
            .then(|| {
                counted().find(|entry| {
                    left -= u32::from(entry.cost);
                    left + cost <= cap.limit
                })
            })
            .flatten()
            .map(|entry| entry.at);
        let freed = blocking.map(|entry| cap.window.freed(entry));
        // `None` is never, and later than any time.
        let later = match (&worst, freed) {
            (None, _) => true,
            (Some((None, _)), _) => false,
            (Some((Some(_), _)), None) => true,
            (Some((Some(worst), _)), Some(freed)) => freed > *worst,
        };
        if later {
            worst = Some((freed, Verdict::Denied { cap: index, used, blocking }));
        }
    }
    worst.map_or(Verdict::Allowed, |(_, verdict)| verdict)
}

/// Writes a send at its time, behind the entries that are not later, and cuts off what is too old.
fn write(history: &mut Vec<Entry>, send: &Send, at: Time, kept_from: Time) {
    history.retain(|entry| entry.at >= kept_from);
    let Send { id, origin, kind, campaign, cost, record: _ } = *send;
    let place = history.partition_point(|entry| entry.at <= at);
    history.insert(place, Entry { at, id, origin, kind, campaign, cost });
}
