//! The pressure of one batch: which of its users may not come in, and which become active by it.

mod back;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

pub(super) use back::BackPlaces;
use foldhash::fast::RandomState;

use super::{Decider, Decoded, fate::Fates, gate::facts};
use crate::{
    activity::{ActivityHash, Minute, Seen},
    policy::{Gate, GateReason, PolicyEval},
    pressure::{ActiveBy, PUT_OFF_MS, Pressure, PressureRule, PressureState},
    record::Records,
    time::Time,
};

/// Whether users who are not active take places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// They do, for a decision that is carried out.
    Take,
    /// They do not: it is only asked what would become of an intent.
    Look,
}

impl Decider {
    /// Gives the places up that other instances may have by now ([`Pressure::give_up_overdue`]): before a batch takes some.
    pub fn give_up_overdue(&self, passed: Duration) {
        if let Some(pressure) = &self.pressure {
            pressure.give_up_overdue(passed);
        }
    }
}

/// The pressure of one batch. What it took and did not use goes back when it is dropped.
pub(crate) struct BatchPressure {
    pressure: Arc<Pressure>,
    state: Arc<PressureState>,
    now: Time,
    /// The user of each record, to be noted where it is approved; `None`: no intent, or its user is noted in this minute already.
    users: Vec<Option<ActivityHash>>,
    /// Whether the rule applies to each record.
    by: Vec<ActiveBy>,
    /// The places of the records whose users may not come in, ascending.
    denied: Vec<usize>,
    /// The users who took a place.
    placed: HashSet<ActivityHash, RandomState>,
    /// The users who have a place by now that came back, and those whose place another one has: `false`.
    moved: HashMap<ActivityHash, bool, RandomState>,
}

impl BatchPressure {
    /// Finds the users who may not come in; takes places for others who are not active. `None` where there is no pressure.
    pub(crate) fn of<'b>(
        pressure: &Arc<Pressure>,
        eval: &mut PolicyEval,
        batch: (&'b impl Records, &'b [Decoded<'b>]),
        (now, at_of): (Time, impl Fn(usize) -> Time),
        places: Places,
    ) -> Option<Self> {
        let (policy, (records, decoded)) = (Arc::clone(eval.policy()), batch);
        let (rule, state) = (policy.pressure.as_ref()?, pressure.state()?);
        let user = |decoded: &Decoded<'_>| decoded.as_ref().ok().map(|intent| intent.user.into());
        let mut users: Vec<Option<ActivityHash>> = decoded.iter().map(user).collect();
        let mut by = vec![ActiveBy::ExemptIntent; decoded.len()];
        let minute = Minute::from(now);
        let (mut denied, mut placed) = (Vec::new(), HashSet::default());
        let mut others: Option<HashMap<ActivityHash, usize, RandomState>> = None;
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let class = intent.class();
            if !rule.filter.matches(class.channel, class.category) {
                continue;
            }
            by[index] = ActiveBy::Intent;
            let (Some(user), at) = (users[index], at_of(index)) else { continue };
            let at_minute = Minute::from(at);
            match state.users.seen(user, at_minute) {
                Seen::InMinute if at_minute == minute => {
                    users[index] = None;
                    continue;
                }
                Seen::InMinute | Seen::Active => continue,
                Seen::No if placed.contains(&user) => continue,
                Seen::No => {}
            }
            eval.turn_to(at);
            if eval.denial(&facts(intent, None, &records.get(index))).is_some() {
                continue;
            }
            // In shadow mode, too: what is reported is what would be denied.
            match places {
                Places::Take if state.take_place() => drop(placed.insert(user)),
                Places::Look if state.has_place() => {}
                Places::Take | Places::Look => {
                    let others = others.get_or_insert_with(|| others_of(rule, eval, batch, &at_of));
                    if others.get(&user).is_none_or(|first| *first > index) {
                        denied.push(index);
                    }
                }
            }
        }
        eval.turn_to(now);
        let (pressure, moved) = (Arc::clone(pressure), HashMap::default());
        Some(Self { pressure, state, now, users, by, denied, placed, moved })
    }

    /// Whether the user of a record may not come in.
    pub(crate) fn denies(&self, record: usize) -> bool {
        let has_place = if self.moved.is_empty() { None } else { self.has_moved_place(record) };
        has_place.map_or_else(|| self.denied.binary_search(&record).is_ok(), |has_place| !has_place)
    }

    /// What the gate makes of an intent at `now`.
    pub(crate) fn gate(&self, record: usize, gate: Gate, now: Time) -> Gate {
        match gate {
            Gate::Bypass | Gate::CheckCaps { .. } if self.denies(record) => {
                Gate::Suppress { reason: GateReason::Pressure, eligible_at: Some(now.plus(PUT_OFF_MS)) }
            }
            gate @ (Gate::Bypass | Gate::CheckCaps { .. } | Gate::Suppress { .. }) => gate,
        }
    }

    /// Notes the users of approved intents as active; places that nobody used go back.
    pub(crate) fn note(&mut self, fates: Fates<'_>) {
        let minute = Minute::from(self.now);
        let users = self.users.iter().zip(&self.by).enumerate();
        let approved = users.filter_map(|(index, (user, by))| {
            let approved = user.filter(|_| fates.get(index).is_approved());
            approved.map(|user| (user, *by))
        });
        self.pressure.note_in(&self.state, approved, minute);
        let placed = std::mem::take(&mut self.placed);
        let taken = u64::try_from(placed.len()).unwrap_or(0);
        let used = placed.into_iter().filter(|user| self.state.users.is_active(*user, minute)).count();
        let used = u64::try_from(used).unwrap_or(0);
        self.state.places.used(used);
        self.state.places.put_back(taken - used);
    }
}

impl Drop for BatchPressure {
    fn drop(&mut self) {
        self.state.places.put_back(u64::try_from(self.placed.len()).unwrap_or(0));
    }
}

/// The users of intents that the rule does not apply to, and that no gate denies; with the first of each. Behind it their user counts as
/// active, as in a batch of its own: a cap that denies it after all lets one user in.
fn others_of<'b>(
    rule: &PressureRule,
    eval: &mut PolicyEval,
    (records, decoded): (&'b impl Records, &'b [Decoded<'b>]),
    at_of: &impl Fn(usize) -> Time,
) -> HashMap<ActivityHash, usize, RandomState> {
    let mut others = HashMap::default();
    for (index, decoded) in decoded.iter().enumerate() {
        let Ok(intent) = decoded else { continue };
        let class = intent.class();
        if rule.filter.matches(class.channel, class.category) {
            continue;
        }
        eval.turn_to(at_of(index));
        if eval.denial(&facts(intent, None, &records.get(index))).is_none() {
            others.entry(intent.user.into()).or_insert(index);
        }
    }
    others
}
