//! The pressure of one batch: which of its users may not come in, and which become active by it.

mod back;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

pub(super) use back::BackPlaces;
use foldhash::fast::RandomState;

use super::{GateDenial, fate::Fates, intents::Intents};
use crate::{
    basis::time::Time,
    batch::record::Records,
    intent::Intent,
    limit::pressure::{
        ActiveBy, PUT_OFF_MS, Pressure, PressureState,
        activity::{ActivityHash, Minute, Seen},
    },
    policy::GateReason,
};

/// The pressure of one batch. What it took and did not use goes back when it is dropped.
pub(super) struct BatchPressure {
    pressure: Arc<Pressure>,
    state: Arc<PressureState>,
    minute: Minute,
    /// Whether it takes no places, and makes nobody active.
    looks: bool,
    /// The users who are to be noted where they are approved, by record: all but those who are noted in this minute already.
    users: Vec<RecordUser>,
    /// The places of the records whose users may not come in, ascending.
    denied: Vec<usize>,
    /// The users who took a place.
    placed: HashSet<ActivityHash, RandomState>,
    /// The users who have a place by now that came back, and those whose place another one has: `false`.
    moved: HashMap<ActivityHash, bool, RandomState>,
}

struct RecordUser {
    record: usize,
    user: ActivityHash,
    by: ActiveBy,
}

impl BatchPressure {
    /// Finds the users who may not come in; takes places for others who are not active, unless it only looks. `None` where there is no
    /// pressure. `passed`: the monotonic clock.
    pub(super) fn of<R: Records>(
        pressure: &Arc<Pressure>,
        intents: &mut Intents<'_, R>,
        (now, passed): (Time, Duration),
        looks: bool,
    ) -> Option<Self> {
        let policy = Arc::clone(intents.eval.policy());
        let (rule, state) = (policy.pressure.as_ref()?, pressure.state()?);
        let (all, minute) = (rule.filter.is_everything(), Minute::from(now));
        let is_of_rule =
            |intent: &Intent<'_>| all || rule.filter.matches(intent.channel.as_deref(), intent.category.as_deref());
        let (mut users, mut denied, mut placed) = (Vec::new(), Vec::new(), HashSet::default());
        let mut unplaced: HashSet<ActivityHash, RandomState> = HashSet::default();
        let mut others: Option<HashMap<ActivityHash, usize, RandomState>> = None;
        for (record, decoded) in intents.decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let user = ActivityHash::from(intent.user);
            if !is_of_rule(intent) {
                users.push(RecordUser { record, user, by: ActiveBy::ExemptIntent });
                continue;
            }
            let at = intents.at(record);
            let at_minute = if at == now { minute } else { Minute::from(at) };
            let seen = state.users.seen(user, at_minute);
            if seen == Seen::InMinute && at_minute == minute {
                continue;
            }
            users.push(RecordUser { record, user, by: ActiveBy::Intent });
            if seen != Seen::No || placed.contains(&user) || intents.denial(record).is_some() {
                continue;
            }
            // In shadow mode, too: what is reported is what would be denied. A user asks once: instances share places by how many users ask.
            let has_place =
                !unplaced.contains(&user) && if looks { state.has_place(passed) } else { state.take_place(passed) };
            if has_place && !looks {
                placed.insert(user);
            }
            if !has_place {
                unplaced.insert(user);
                let others = others.get_or_insert_with(|| others_of(intents, is_of_rule));
                if others.get(&user).is_none_or(|first| *first > record) {
                    denied.push(record);
                }
            }
        }
        let (pressure, moved) = (Arc::clone(pressure), HashMap::default());
        Some(Self { pressure, state, minute, looks, users, denied, placed, moved })
    }

    fn denies(&self, record: usize) -> bool {
        let has_place = if self.moved.is_empty() { None } else { self.has_moved_place(record) };
        has_place.map_or_else(|| self.denied.binary_search(&record).is_ok(), |has_place| !has_place)
    }

    /// Why an intent that comes at `now` is denied, if it is.
    pub(super) fn denial(&self, record: usize, now: Time) -> Option<GateDenial> {
        self.denies(record).then(|| (GateReason::Pressure, Some(now.plus(PUT_OFF_MS))))
    }

    /// Notes the users of approved intents as active; places that nobody used go back.
    pub(super) fn note(&mut self, fates: &Fates) {
        if self.looks {
            return;
        }
        let approved = self.users.iter().filter(|of| fates.get(of.record).is_approved());
        self.pressure.note_in(&self.state, approved.map(|of| (of.user, of.by)), self.minute);
        let placed = std::mem::take(&mut self.placed);
        let taken = u64::try_from(placed.len()).unwrap_or(0);
        let used = placed.into_iter().filter(|user| self.state.users.is_active(*user, self.minute)).count();
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
fn others_of<R: Records>(
    intents: &mut Intents<'_, R>,
    is_of_rule: impl Fn(&Intent<'_>) -> bool,
) -> HashMap<ActivityHash, usize, RandomState> {
    let mut others = HashMap::default();
    for (record, decoded) in intents.decoded.iter().enumerate() {
        let Ok(intent) = decoded else { continue };
        if !is_of_rule(intent) && intents.denial(record).is_none() {
            others.entry(intent.user.into()).or_insert(record);
        }
    }
    others
}
