//! Why a user was not sent something, and when they may be: what each cap stands at, and what would become of an
//! intent. Made by the functions that decide, so that it cannot say anything else than they do.

use std::collections::BTreeSet;

use crate::{
    basis::{time::Time, zone::Zone},
    history::{
        Entry,
        admit::{AdmitRequest, CapQuery},
        decide::{self, Answer, MAX_AHEAD_MS, Room, Scope, alive, decide, judged_at},
        named::NamedHistory,
    },
    intent::class::{Campaign, Kind},
    policy::{Cap, Caps},
};

/// The time from which a cap allows an intent of cost 1, if nothing else is approved. Ordered from soonest to latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Next {
    Now,
    /// From this moment on, later than the clock.
    At(Time),
    /// Never: its limit is 0.
    Never,
}

impl Next {
    /// The moment, where there is one; `now` for [`Next::Now`].
    pub const fn time(self, now: Time) -> Option<Time> {
        match self {
            Self::Now => Some(now),
            Self::At(at) => Some(at),
            Self::Never => None,
        }
    }
}

/// What one campaign takes of a cap that counts each by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CampaignUse {
    pub campaign: Campaign,
    /// What its sends in the window cost.
    pub used: u32,
    /// When the next send of this campaign fits.
    pub next: Next,
}

/// What one cap stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapUse<'p> {
    pub cap: &'p Cap,
    /// What the sends in its window cost; of a cap that counts each campaign by itself, that of the campaign with most.
    pub used: u32,
    /// The time from which it allows every matching intent of cost 1, of any campaign.
    pub next: Next,
    /// The same for a send of a campaign that the user was never sent.
    pub next_new: Next,
    /// For a cap that counts each campaign by itself, the campaigns with a send in its window.
    pub campaigns: Vec<CampaignUse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing<'p> {
    /// The time that a send now would be judged by.
    pub judged_at: Time,
    /// Whether the history has an entry more than [`MAX_AHEAD_MS`] ahead of the clock.
    pub ahead: bool,
    /// Each cap, in the policy's order.
    pub caps: Vec<CapUse<'p>>,
    /// The time from which all caps allow every intent of cost 1, of any channel, category and campaign.
    pub next: Next,
    /// The time from which they allow some intent of cost 1: one that only caps without a filter match.
    pub soonest: Next,
}

#[derive(Debug, Clone, Copy)]
pub struct UserMoment<'a> {
    pub history: &'a NamedHistory,
    /// The zone of calendar windows.
    pub zone: &'a Zone,
    pub now: Time,
}

impl<'a> UserMoment<'a> {
    /// The entries that still count for something, and the time by which a send is judged now.
    pub fn alive(&self) -> (&'a [Entry], Time) {
        let (at, _) = judged_at(&self.history.entries, self.now);
        (alive(&self.history.entries, at, self.history.retention_ms), at)
    }

    pub fn standing<'p>(&self, caps: &'p Caps) -> Standing<'p> {
        let (judged_at, ahead) = judged_at(&self.history.entries, self.now);
        let caps: Vec<CapUse<'p>> = caps.list().iter().map(|cap| self.cap_use(cap)).collect();
        let next = caps.iter().map(|cap| cap.next).max().unwrap_or(Next::Now);
        let on_everything = caps.iter().filter(|cap| cap.cap.filter.is_everything());
        let soonest = on_everything.map(|cap| cap.next_new).max().unwrap_or(Next::Now);
        Standing { judged_at, ahead, caps, next, soonest }
    }

    fn cap_use<'p>(&self, cap: &'p Cap) -> CapUse<'p> {
        let (alive, at) = self.alive();
        let counting = decide::Cap {
            window: cap.window.at(self.zone, self.now),
            limit: cap.limit,
            kinds: self.history.matching(&cap.filter),
            scope: cap.scope,
        };
        let of = |campaign| {
            let (used, room) = counting.weigh(alive, campaign, 1, at);
            CampaignUse { campaign, used, next: self.next(cap, room) }
        };
        // What a campaign that was never sent before is up against: everything, or what could be any campaign.
        let new = of(self.history.unknown_campaign());
        let campaigns: Vec<CampaignUse> = match cap.scope {
            Scope::Every => Vec::new(),
            Scope::SameCampaign => {
                let sent: BTreeSet<Campaign> = alive.iter().map(|entry| entry.campaign).collect();
                let known = sent.into_iter().filter(|campaign| *campaign != Campaign::OVERFLOW);
                known.map(of).filter(|campaign| campaign.used > new.used).collect()
            }
        };
        let all = || campaigns.iter().chain([&new]);
        CapUse {
            cap,
            used: all().map(|one| one.used).max().unwrap_or(0),
            next: all().map(|one| one.next).max().unwrap_or(Next::Now),
            next_new: new.next,
            campaigns,
        }
    }

    fn next(&self, cap: &Cap, room: Room) -> Next {
        match room {
            Room::Free => Next::Now,
            Room::Behind(entry) => Next::At(self.clock_at(cap.window.freed(self.zone, entry))),
            Room::Never => Next::Never,
        }
    }

    /// What the clock shows when this user's sends are first judged by `at` or later: an entry ahead of the clock pulls
    /// the user's time forward as soon as it is less than [`MAX_AHEAD_MS`] away.
    fn clock_at(&self, at: Time) -> Time {
        let entries = &self.history.entries;
        let ahead = entries.get(entries.partition_point(|entry| entry.at < at));
        ahead.map_or(at, |entry| at.min(entry.at.plus(-MAX_AHEAD_MS)))
    }
}

/// What a store with this history would answer to a send; nothing is recorded.
pub fn would(history: &NamedHistory, request: &AdmitRequest<'_>, caps: &[CapQuery], now: Time) -> Answer {
    // A send's own kind plays no part: its caps have been chosen by name.
    let send = request.send((Kind::NONE, history.campaign_number(request.class.campaign)));
    let caps: Vec<decide::Cap> = caps.iter().map(|query| query.counting(history.matching(&query.filter))).collect();
    decide(&mut history.entries.clone(), &send, &caps, now, history.retention_ms.into())
}

#[cfg(test)]
mod tests;
