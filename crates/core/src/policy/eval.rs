//! A policy applied to one batch: one clock, many intents.

use std::{collections::HashMap, sync::Arc};

use super::{
    Cap, CapWindow, Counts, GateReason, Period, Policy,
    cap_lists::{CapList, CapLists, Mask},
};
use crate::{
    basis::{
        time::Time,
        window::{Window, next_start},
        zone::Zone,
    },
    history::admit::CapQuery,
    intent::class::ClassNames,
};

/// What of an intent a policy looks at.
#[derive(Debug, Clone, Copy, Default)]
pub struct IntentFacts<'a> {
    /// The user's segment, by its place among the names given to [`PolicyEval::new`]; `None` in none.
    pub segment: Option<usize>,
    pub class: ClassNames<'a>,
    pub created_at: Option<Time>,
    /// Kafka's time of the record, which stands in for a missing `created_at`.
    pub kafka_timestamp: Option<Time>,
    pub expires_at: Option<Time>,
    pub not_before: Option<Time>,
    /// The user's zone, where the intent names it.
    pub zone: Option<&'a Zone>,
}

/// The cap that denied, as a decision reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedCap<'e> {
    pub cap: &'e Cap,
    /// The first moment at which it would let the same intent through; `None` where there is none.
    pub eligible_at: Option<Time>,
}

/// Where a set of caps came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SetKey {
    /// Index of the caps' list.
    list: usize,
    /// Those of the list that the intent's class asks for.
    mask: Mask,
    /// The zone of the calendar windows in it; 0 where there are none.
    zone: usize,
}

/// What is known of a zone at the clock.
#[derive(Debug)]
struct ZoneNow {
    zone: Zone,
    /// The end of the quiet hours; `None` where it is not quiet now.
    quiet_until: Option<Time>,
    /// The clock at which this was found out.
    at: Time,
    /// The time from which it no longer holds; computed once the clock has moved.
    until: Option<Time>,
}

impl ZoneNow {
    fn new(zone: Zone, policy: &Policy, now: Time) -> Self {
        let quiet_until = policy.quiet_hours.as_ref().and_then(|quiet| quiet.end(&zone, now));
        Self { zone, quiet_until, at: now, until: None }
    }

    /// Whether all of it, and the calendar periods around it, are the same at `now`.
    fn holds(&mut self, policy: &Policy, now: Time) -> bool {
        let (zone, at) = (&self.zone, self.at);
        // Weeks and months begin where days do.
        let change = || {
            let quiet = policy.quiet_hours.as_ref().map(|quiet| quiet.change(zone, at));
            next_start(Period::Day, zone, at).min(quiet.unwrap_or(Time::MAX))
        };
        now == at || (now > at && now < *self.until.get_or_insert_with(change))
    }
}

/// A policy at one moment. Sets of caps are made once a batch, however many intents share them.
///
/// A worker's batch has one clock; a replay of past intents moves it from intent to intent ([`PolicyEval::turn_to`]).
#[derive(Debug)]
pub struct PolicyEval {
    policy: Arc<Policy>,
    /// Whether a rule of the policy may deny an intent, and not only a time of its own.
    has_gates: bool,
    now: Time,
    lists: CapLists,
    zones: Vec<ZoneNow>,
    zone_numbers: HashMap<Zone, usize>,
    sets: Vec<SetKey>,
    set_numbers: HashMap<SetKey, usize>,
    cap_sets: Vec<Vec<CapQuery>>,
}

impl PolicyEval {
    /// The policy at the batch's clock, for the segments of the set in use: their names, in its order.
    #[must_use]
    pub fn new(policy: Arc<Policy>, segments: Arc<[Box<str>]>, now: Time) -> Self {
        let has_gates = !policy.stops.is_empty() || policy.max_age_ms.is_some() || policy.quiet_hours.is_some();
        let mut eval = Self {
            lists: CapLists::new(&policy, segments),
            policy,
            has_gates,
            now,
            zones: Vec::new(),
            zone_numbers: HashMap::new(),
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            cap_sets: Vec::new(),
        };
        eval.zone_number(None);
        eval.set_number(SetKey { list: CapLists::DEFAULT, mask: Mask::default(), zone: 0 });
        eval
    }

    /// Whether the policy names a segment, by its place in the set.
    #[inline]
    pub fn names(&mut self, segment: usize) -> bool {
        self.lists.of(segment, &self.policy) != CapLists::DEFAULT
    }

    /// Moves the clock for the following intents. Existing sets of caps keep the windows of the clock that they were made
    /// with.
    pub fn turn_to(&mut self, now: Time) {
        self.now = now;
    }

    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The set of caps that allows everything: for sends that are only to be recorded.
    pub const NO_CAPS: usize = 0;

    /// Moves the sets of caps out, for [`crate::history::admit::AdmitBatch::cap_sets`], once all intents of the batch
    /// have been through the gate.
    /// [`PolicyEval::denied`] goes on working.
    #[must_use]
    pub fn take_cap_sets(&mut self) -> Vec<Vec<CapQuery>> {
        std::mem::take(&mut self.cap_sets)
    }

    /// Whether an intent without times of its own may be [denied](Self::denial).
    #[must_use]
    #[inline]
    pub const fn has_gates(&self) -> bool {
        self.has_gates
    }

    /// Why an intent is denied before limits and caps are asked, and until when; `None` where nothing denies it. The order: stops,
    /// `expires_at`, `max_age`, `not_before`, quiet hours. In shadow mode it is sent all the same.
    #[inline]
    pub fn denial(&mut self, intent: &IntentFacts<'_>) -> Option<(GateReason, Option<Time>)> {
        if !self.policy.stops.is_empty() && self.is_stopped(intent.class) {
            return Some((GateReason::Stopped, None));
        }
        if self.expired(intent) {
            return Some((GateReason::Expired, None));
        }
        if let Some(due) = intent.not_before.filter(|&due| due > self.now) {
            return Some((GateReason::TooEarly, Some(due)));
        }
        self.policy.quiet_hours.as_ref()?;
        self.quiet_until(intent.class, intent.zone).map(|end| (GateReason::QuietHours, Some(end)))
    }

    /// The set of caps, of [`PolicyEval::take_cap_sets`], by which the store is asked about an intent that is not denied; `None`: it goes
    /// by a bypass, is not recorded, and the store is not asked.
    #[inline]
    pub fn route(&mut self, intent: &IntentFacts<'_>) -> Option<usize> {
        let bypass = if self.policy.bypass.is_empty() { None } else { self.bypass(intent.class) };
        match bypass {
            Some(Counts::No) => None,
            Some(Counts::Yes | Counts::Later) => Some(Self::NO_CAPS),
            None => Some(self.cap_set(intent)),
        }
    }

    #[inline(never)]
    fn bypass(&self, class: ClassNames<'_>) -> Option<Counts> {
        self.policy.bypass.iter().find(|rule| rule.selection.matches(&class)).map(|rule| rule.counts)
    }

    /// What to say of a denial: which cap, and when it frees. `blocking` is the entry that has to leave the
    /// window, as the store answers it. `None` where the set has no such cap, which a sound store never answers.
    #[must_use]
    pub fn denied(&self, cap_set: usize, cap: u8, blocking: Option<Time>) -> Option<DeniedCap<'_>> {
        let key = self.sets.get(cap_set)?;
        let list = self.lists.get(key.list).caps.list();
        let cap = list.get(members(&key.mask, list.len()).nth(usize::from(cap))?)?;
        let zone = &self.zones[key.zone].zone;
        let eligible_at = blocking.map(|entry| cap.window.freed(zone, entry));
        Some(DeniedCap { cap, eligible_at })
    }

    #[inline(never)]
    fn is_stopped(&self, class: ClassNames<'_>) -> bool {
        self.policy.stops.iter().any(|stop| stop.matches(&class))
    }

    #[inline]
    fn expired(&self, intent: &IntentFacts<'_>) -> bool {
        self.expired_at(intent, self.now)
    }

    /// Why an intent that was approved is not delivered any more by then: it is stopped, or has expired.
    #[must_use]
    pub fn ended(&self, intent: &IntentFacts<'_>, then: Time) -> Option<GateReason> {
        if self.is_stopped(intent.class) {
            return Some(GateReason::Stopped);
        }
        self.expired_at(intent, then).then_some(GateReason::Expired)
    }

    #[must_use]
    #[inline]
    pub fn expired_at(&self, intent: &IntentFacts<'_>, then: Time) -> bool {
        let past = intent.expires_at.is_some_and(|expiry| then >= expiry);
        let made = intent.created_at.or(intent.kafka_timestamp);
        let too_old = match (self.policy.max_age_ms, made) {
            (Some(max_age_ms), Some(made)) => made.plus(max_age_ms) < then,
            (None, _) | (_, None) => false,
        };
        past || too_old
    }

    fn quiet_until(&mut self, class: ClassNames<'_>, zone: Option<&Zone>) -> Option<Time> {
        let ClassNames { channel, category, campaign: _ } = class;
        if !self.policy.quiet_hours.as_ref()?.filter().matches(channel, category) {
            return None;
        }
        let zone = self.zone_number(zone);
        self.zones[zone].quiet_until
    }

    /// The caps of the user's segment that match the intent's channel and category.
    #[inline]
    fn cap_set(&mut self, intent: &IntentFacts<'_>) -> usize {
        let list = intent.segment.map_or(CapLists::DEFAULT, |segment| self.lists.of(segment, &self.policy));
        let CapList { uniform, made, .. } = self.lists.get(list);
        if let (true, [(_, number), ..]) = (*uniform, made.as_slice()) {
            return *number;
        }
        self.cap_set_of(list, intent.class, intent.zone)
    }

    #[inline(never)]
    fn cap_set_of(&mut self, list: usize, class: ClassNames<'_>, zone: Option<&Zone>) -> usize {
        let CapList { caps, made, .. } = self.lists.get(list);
        let mut mask = Mask::default();
        let mut calendar = false;
        for (index, cap) in caps.list().iter().enumerate() {
            if cap.filter.matches(class.channel, class.category) {
                mask[index / 64] |= 1 << (index % 64);
                calendar |= matches!(cap.window, CapWindow::Per(_));
            }
        }
        if mask == Mask::default() {
            return Self::NO_CAPS;
        }
        if calendar {
            let zone = self.zone_number(zone);
            return self.set_number(SetKey { list, mask, zone });
        }
        if let Some(&(_, number)) = made.iter().find(|(caps, _)| *caps == mask) {
            return number;
        }
        let number = self.set_number(SetKey { list, mask, zone: 0 });
        self.lists.made(list, mask, number);
        number
    }

    fn set_number(&mut self, key: SetKey) -> usize {
        if let Some(&number) = self.set_numbers.get(&key) {
            return number;
        }
        let zone = self.zones[key.zone].zone.clone();
        let list = Arc::clone(&self.lists.get(key.list).caps);
        let caps = members(&key.mask, list.list().len()).map(|index| self.query(&list.list()[index], &zone));
        let caps = caps.collect();
        let number = self.sets.len();
        self.cap_sets.push(caps);
        self.sets.push(key.clone());
        self.set_numbers.insert(key, number);
        number
    }

    fn query(&self, cap: &Cap, zone: &Zone) -> CapQuery {
        CapQuery {
            window: cap.window.at(zone, self.now),
            limit: cap.limit,
            filter: Arc::clone(&cap.filter),
            scope: cap.scope,
        }
    }

    /// The number of a zone, the policy's (0) for none.
    fn zone_number(&mut self, zone: Option<&Zone>) -> usize {
        let zone = zone.unwrap_or(&self.policy.timezone);
        if let Some(&number) = self.zone_numbers.get(zone)
            && self.zones[number].holds(&self.policy, self.now)
        {
            return number;
        }
        let number = self.zones.len();
        self.zones.push(ZoneNow::new(zone.clone(), &self.policy, self.now));
        self.zone_numbers.insert(zone.clone(), number);
        number
    }
}

impl CapWindow {
    /// The window at the batch's clock, in a user's zone.
    #[must_use]
    pub fn at(&self, zone: &Zone, now: Time) -> Window {
        match self {
            Self::Sliding { length_ms, .. } => Window::Sliding { length_ms: *length_ms },
            Self::Per(period) => Period::window(*period, zone, now),
        }
    }

    /// The first moment at which an entry made at `entry` has left the window.
    #[must_use]
    pub fn freed(&self, zone: &Zone, entry: Time) -> Time {
        match self {
            Self::Sliding { length_ms, .. } => entry.plus(*length_ms),
            Self::Per(period) => next_start(*period, zone, entry),
        }
    }
}

/// The indices in a mask, ascending.
fn members(mask: &Mask, len: usize) -> impl Iterator<Item = usize> {
    let mask = *mask;
    (0..len.min(mask.len() * 64)).filter(move |index| mask[index / 64] >> (index % 64) & 1 == 1)
}
