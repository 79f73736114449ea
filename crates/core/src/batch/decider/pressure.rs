//! The pressure of one batch: which of its users may not come in, and which become active by it. A place that came back, because no intent
//! of its user is approved, is given to another user of the batch.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;

use super::{
    Decider, Ground, Settlement, Takes,
    fate::Fates,
    intents::Intents,
    limits::{Ending, Limit, is_worth_it},
};
use crate::{
    batch::record::Records,
    intent::Intent,
    limit::pressure::{
        ActiveBy, PUT_OFF_MS, Pressure, PressureState,
        activity::{ActivityHash, Minute, Seen},
    },
    policy::{GateReason, SuppressReason},
};

/// The pressure of one batch. What it took and did not use goes back when it is dropped.
pub(super) struct BatchPressure {
    pressure: Arc<Pressure>,
    state: Arc<PressureState>,
    minute: Minute,
    /// Until when the places that it took are this process's, by the monotonic clock, as far as was known then.
    until: Duration,
    /// Whether it takes no places, and makes nobody active.
    looks: bool,
    /// The users who are to be noted where they are approved, by record: all but those who are noted in this minute already.
    users: Vec<RecordUser>,
    placed: HashSet<ActivityHash, RandomState>,
    back: BackPlaces,
}

struct RecordUser {
    record: usize,
    user: ActivityHash,
    by: ActiveBy,
    /// Whether the record is denied unless its user has a place.
    needs_place: bool,
}

/// The places that came back, by the users who took them.
#[derive(Default)]
struct BackPlaces {
    users: HashSet<ActivityHash, RandomState>,
    /// The users in the order of their intents. A user stays here when the place is given away.
    order: VecDeque<ActivityHash>,
}

impl BackPlaces {
    fn take(&mut self) -> Option<ActivityHash> {
        while let Some(user) = self.order.pop_front() {
            if self.users.remove(&user) {
                return Some(user);
            }
        }
        None
    }
}

impl BatchPressure {
    /// Finds the users who may not come in; takes places for others who are not active, unless it only looks.
    pub(super) fn take<R: Records>(
        decider: &Decider,
        intents: &mut Intents<'_, R>,
        ground: &Ground<'_>,
    ) -> Option<Self> {
        let policy = Arc::clone(intents.eval.policy());
        let (rule, pressure) = (policy.pressure.as_ref()?, Arc::clone(decider.held.pressure.as_ref()?));
        let (state, now, passed) = (pressure.state()?, ground.times.first(), ground.passed);
        let (looks, all, minute) =
            (matches!(ground.takes, Takes::Nothing), rule.filter.is_everything(), Minute::from(now));
        let is_of_rule =
            |intent: &Intent<'_>| all || rule.filter.matches(intent.channel.as_deref(), intent.category.as_deref());
        let (mut users, mut placed) = (Vec::new(), HashSet::default());
        let mut unplaced: HashSet<ActivityHash, RandomState> = HashSet::default();
        let mut others: Option<HashMap<ActivityHash, usize, RandomState>> = None;
        let (active, until) = (state.users.at(minute), state.places.until());
        for (record, decoded) in intents.decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let user = ActivityHash::from(intent.user);
            if !is_of_rule(intent) {
                users.push(RecordUser { record, user, by: ActiveBy::ExemptIntent, needs_place: false });
                continue;
            }
            let at = intents.at(record);
            let at_minute = if at == now { minute } else { Minute::from(at) };
            let is_now = at_minute == minute;
            let seen = if is_now { active.seen(user) } else { state.users.seen(user, at_minute) };
            if seen == Seen::InMinute && is_now {
                continue;
            }
            let mut needs_place = seen == Seen::No && (placed.contains(&user) || intents.denial(record).is_none());
            if needs_place && !placed.contains(&user) {
                // In shadow mode, too: what is reported is what would be denied. A user asks once: instances share places by how many
                // users ask.
                let has_place =
                    !unplaced.contains(&user) && if looks { state.has_place(passed) } else { state.take_place(passed) };
                if has_place {
                    placed.insert(user);
                } else {
                    unplaced.insert(user);
                    let others = others.get_or_insert_with(|| others_of(intents, is_of_rule));
                    needs_place = others.get(&user).is_none_or(|first| *first > record);
                    if needs_place {
                        let reason = GateReason::Limit(SuppressReason::Pressure, rule.action);
                        intents.denials.deny(record, (reason, Some(at.plus(PUT_OFF_MS))));
                    }
                }
            }
            users.push(RecordUser { record, user, by: ActiveBy::Intent, needs_place });
        }
        Some(Self { pressure, state, minute, until, looks, users, placed, back: BackPlaces::default() })
    }

    /// Whether the user of a record may not come in.
    fn denies(&self, record: usize) -> bool {
        self.user(record).is_some_and(|of| of.needs_place && !self.placed.contains(&of.user))
    }

    /// The user of a record, where it is to be noted.
    fn user(&self, record: usize) -> Option<&RecordUser> {
        self.users.binary_search_by_key(&record, |of| of.record).ok().map(|place| &self.users[place])
    }
}

impl Limit for BatchPressure {
    /// The places of users who have no approved intent.
    fn comes_back(&mut self, fates: &Fates) -> bool {
        if self.looks || self.placed.is_empty() {
            return false;
        }
        let mut users = self.placed.clone();
        for RecordUser { record, user, .. } in &self.users {
            if users.contains(user) && fates.get(*record).is_approved() {
                users.remove(user);
            }
        }
        let mut rest = users.clone();
        let order = self.users.iter().map(|of| of.user).filter(|user| rest.remove(user)).collect();
        self.back = BackPlaces { users, order };
        is_worth_it(count(&self.back.users), count(&self.placed))
    }

    fn lacks(&self, record: usize) -> bool {
        self.denies(record) && self.back.users.is_empty()
    }

    /// Gives the user of a record a place, if it needs one: its own, if that came back.
    fn give(&mut self, record: usize) {
        let Some(user) = self.user(record).map(|of| of.user) else { return };
        if !self.back.users.remove(&user)
            && self.denies(record)
            && let Some(other) = self.back.take()
        {
            self.placed.remove(&other);
            self.placed.insert(user);
        }
    }

    /// Notes the users of approved intents as active; places that nobody used go back.
    fn settle(&mut self, ending: &Ending<'_>, _: &mut Settlement) {
        if self.looks {
            return;
        }
        let approved = self.users.iter().filter(|of| ending.fates.get(of.record).is_approved());
        self.pressure.note_in(&self.state, approved.map(|of| (of.user, of.by)), self.minute);
        let placed = std::mem::take(&mut self.placed);
        let taken = count(&placed);
        let used = placed.into_iter().filter(|user| self.state.users.is_active(*user, self.minute)).count();
        let used = u64::try_from(used).unwrap_or(0);
        self.state.places.used(used);
        self.state.places.put_back(taken - used, self.until);
    }
}

impl Drop for BatchPressure {
    fn drop(&mut self) {
        if !self.looks {
            self.state.places.put_back(count(&self.placed), self.until);
        }
    }
}

fn count(users: &HashSet<ActivityHash, RandomState>) -> u64 {
    u64::try_from(users.len()).unwrap_or(0)
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
