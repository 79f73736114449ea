//! Who is active by the rule in force, and by those before and after it.

use std::sync::Arc;

use weir_core::limit::pressure::{Pressure, PressureRule, PressureState, activity::Minute};

use super::view::View;

#[derive(Default)]
pub(super) struct Views {
    /// In force, or with the places of the next turn.
    pub(super) now: Option<View>,
    /// `now` has no places yet: it comes into force with those of the next turn.
    pub(super) waits_for_places: bool,
    /// Read from the beginning of its window, to be in force then.
    pub(super) next: Option<View>,
    /// In force before, or until `now` is; batches that have begun by them are still decided by them. Several, where rules follow each other
    /// faster than turns.
    pub(super) before: Vec<Arc<PressureState>>,
}

impl Views {
    /// Begins to read for a rule with another maximum or window.
    pub(super) fn follow(&mut self, rule: &PressureRule, now: Minute) {
        if self.now.as_ref().is_some_and(|view| view.is_of(rule)) {
            self.next = None;
        } else if !self.next.as_ref().is_some_and(|next| next.is_of(rule)) {
            self.next = Some(View::new(rule, now));
        }
    }

    /// The one that is read.
    pub(super) fn reading(&self) -> Option<&View> {
        self.next.as_ref().or(self.now.as_ref())
    }

    pub(super) fn reading_mut(&mut self) -> Option<&mut View> {
        self.next.as_mut().or(self.now.as_mut())
    }

    /// All is read: the next turn asks for places.
    pub(super) fn take_up(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.before.extend(self.now.replace(next).map(|before| before.state));
        self.waits_for_places = true;
    }

    /// Puts the new view into force, with the places of this turn.
    pub(super) fn put_in_force(&mut self, pressure: &Pressure) {
        self.waits_for_places = false;
        pressure.replace(self.now.as_ref().map(|view| Arc::clone(&view.state)));
        self.before.iter().for_each(|before| before.places.withdraw_above(0));
    }

    /// Those whose places this instance holds.
    pub(super) fn states(&self) -> impl Iterator<Item = &Arc<PressureState>> {
        self.now.iter().map(|view| &view.state).chain(&self.before)
    }
}
