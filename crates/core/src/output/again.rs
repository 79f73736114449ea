//! Approved intents that are delivered again.

use std::sync::Arc;

use super::OutputWriter;
use crate::{
    decider::{Disposition, GateResult, facts},
    intent::Intent,
    policy::GateReason,
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
        gate_result: &GateResult,
    ) -> Output {
        if let Some(deferral) = record.deferral.filter(|deferral| !deferral.waits_for_route()) {
            self.tally.released(self.now.millis() - deferral.due.millis());
        }
        let eval = self.grounds.eval;
        let route = retry::route_of(eval.policy(), intent).map(|route| &route.name);
        let denied = if let Disposition::Suppress((reason, _)) = gate_result.disposition { Some(reason) } else { None };
        let ended = retry::ended(eval, &facts(intent, None, record), self.now);
        if let Some(why) = ended.or_else(|| denied.and_then(retry::denied)) {
            self.tally.undelivered(route, why);
            return retry::undelivered(why);
        }
        if let Some(GateReason::RouteFull(route)) = denied {
            return self.waiting((record, bytes_beside()), intent, usize::try_from(route).unwrap_or(usize::MAX));
        }
        self.tally.retried(route);
        Output { to: self.approved(intent), value: OutputValue::AsItCame, headers: Arc::clone(&self.none) }
    }
}
