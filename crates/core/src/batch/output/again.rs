//! Approved intents that are delivered again.

use std::sync::Arc;

use super::{Came, OutputWriter};
use crate::batch::{
    decider::{Denier, Fate},
    record::{Output, OutputValue},
    retry,
};

impl<'b> OutputWriter<'_, 'b> {
    /// The record of an intent that was approved before, and is delivered again. Without a permit of its route it waits there, as an
    /// approved one.
    pub(crate) fn again(&mut self, came: &Came<'_, 'b>) -> Output {
        self.count_release(came);
        let eval = self.grounds.eval;
        let route = retry::route_of(eval.policy(), came.intent).map(|route| &route.name);
        if let Fate::Suppressed(Denier::Gate((reason, _)), _) = came.fate
            && let Some(why) = retry::given_up(reason)
        {
            self.tally.undelivered(route, why);
            return retry::undelivered(why);
        }
        if let Some(route) = came.fate.route() {
            return self.waiting(came, route);
        }
        self.tally.retried(route);
        Output { to: self.approved(came.intent), value: OutputValue::AsItCame, headers: Arc::clone(&self.none) }
    }
}
