//! Approved intents that are delivered again.

use std::sync::Arc;

use super::OutputWriter;
use crate::{
    decider::facts,
    intent::Intent,
    record::{Output, OutputValue, RecordView},
    retry,
};

impl OutputWriter<'_, '_> {
    /// The record of an intent that was approved before, and is delivered again.
    pub(super) fn again(&mut self, record: &RecordView<'_>, intent: &Intent<'_>) -> Output {
        if let Some(deferral) = record.deferral {
            self.tally.released(self.now.millis() - deferral.due.millis());
        }
        let eval = self.grounds.eval;
        let route = retry::route_of(eval.policy(), intent).map(|route| &route.name);
        if let Some(why) = retry::ended(eval, &facts(intent, None, record), self.now) {
            self.tally.undelivered(route, why);
            return retry::undelivered(why);
        }
        self.tally.retried(route);
        Output { to: self.approved(intent), value: OutputValue::AsItCame, headers: Arc::clone(&self.none) }
    }
}
