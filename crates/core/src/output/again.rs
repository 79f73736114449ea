//! Approved intents that are delivered again.

use std::sync::Arc;

use super::OutputWriter;
use crate::{
    decider::{Denier, Fate, facts},
    intent::Intent,
    record::{Output, OutputValue, RecordView},
    retry,
};

impl OutputWriter<'_, '_> {
    /// The record of an intent that was approved before, and is delivered again. Without a permit of its route it waits there, as an
    /// approved one.
    pub(super) fn again(
        &mut self,
        (record, bytes_beside): (&RecordView<'_>, &dyn Fn() -> usize),
        intent: &Intent<'_>,
        fate: &Fate,
    ) -> Output {
        if let Some(deferral) = record.deferral.filter(|deferral| !deferral.waits_for_route()) {
            self.tally.released(self.now.millis() - deferral.due.millis());
        }
        let eval = self.grounds.eval;
        let route = retry::route_of(eval.policy(), intent).map(|route| &route.name);
        let denied = if let Fate::Suppressed(Denier::Gate((reason, _)), _) = *fate { Some(reason) } else { None };
        let ended = retry::ended(eval, &facts(intent, None, record), self.now);
        if let Some(why) = ended.or_else(|| denied.and_then(retry::denied)) {
            self.tally.undelivered(route, why);
            return retry::undelivered(why);
        }
        if let Some(route) = fate.route() {
            return self.waiting((record, bytes_beside()), intent, route);
        }
        self.tally.retried(route);
        Output { to: self.approved(intent), value: OutputValue::AsItCame, headers: Arc::clone(&self.none) }
    }
}
