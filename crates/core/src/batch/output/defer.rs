//! Which intents are deferred, why and until when.

use super::Grounds;
use crate::{
    basis::{shard::UserHash, time::Time},
    batch::decider::{Denier, Fate},
    decision::verdict::{Cause, SuppressReason, Verdict},
    deferral::{DeferReason, Deferral, wheel::rounded},
    policy::{Action, GateReason},
};

/// How long an intent is deferred whose history is unavailable, in milliseconds: a minute, and twice as long with each further
/// deferral, up to a quarter of an hour. A record has one count, of all its deferrals: what quiet hours deferred before waits a minute
/// first as well, and goes on as if it had been deferred so before.
pub(super) fn unavailable_for_ms(before: Option<&Deferral>) -> i64 {
    const MINUTE_MS: i64 = 60 * 1000;
    let times = before.filter(|before| before.why == DeferReason::Unavailable).map_or(0, |before| before.count);
    (MINUTE_MS << times.min(4)).min(15 * MINUTE_MS)
}

/// What an intent got, and how.
pub(crate) struct Ruled<'v> {
    pub(crate) fate: Fate,
    pub(crate) verdict: &'v Verdict<'v>,
}

impl Grounds<'_> {
    /// Why and until when an intent is deferred that got this verdict at `now`; `None` where the verdict stands.
    pub(crate) fn to_defer(
        self,
        (segment, user): (Option<&str>, UserHash),
        Ruled { fate, verdict }: Ruled<'_>,
        now: Time,
    ) -> Option<(DeferReason, Time)> {
        let Verdict::Suppressed(suppressed) = verdict else { return None };
        let policy = self.eval.policy();
        let cap_defers = |name: &str| {
            let caps = policy.caps_of(segment).list();
            caps.iter().any(|cap| *cap.name == *name && cap.action == Action::Defer)
        };
        let budget_defers =
            |name: &str| policy.budgets.iter().any(|of| *of.name == *name && of.when_spent == Action::Defer);
        let quiet_defers = policy.quiet_hours.as_ref().filter(|quiet| quiet.action == Action::Defer);
        // Where all would come back at once, they are spread.
        let spread_ms = match (suppressed.cause, fate.denier().and_then(Denier::reason)) {
            (Cause::Plain(_), Some(GateReason::TooEarly)) => 0,
            (Cause::Plain(_), Some(GateReason::QuietHours)) => quiet_defers?.spread_of(user),
            (Cause::Plain(SuppressReason::Pressure), Some(GateReason::Limit(_, Action::Defer))) => {
                policy.pressure.as_ref()?.spread_of(user, now)
            }
            (Cause::Plain(_), Some(GateReason::Limit(_, Action::Defer))) => 0,
            (Cause::Cap(cap), _) if cap_defers(cap.name) => 0,
            (Cause::Budget(budget), _) if budget_defers(budget.name) => 0,
            (Cause::Cap(_) | Cause::Budget(_) | Cause::Plain(_), _) => return None,
        };
        let why = DeferReason::of(suppressed.reason().as_str().as_bytes())?;
        let due = rounded(suppressed.eligible_at?.plus(spread_ms));
        let most_ms = policy.defer_max_ms.min(self.decider.limits.deferrable_ms());
        (due <= now.plus(most_ms)).then_some((why, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_further_deferral_of_what_is_unavailable_is_twice_as_long_up_to_a_quarter_of_an_hour() {
        let minutes = |before: Option<&Deferral>| unavailable_for_ms(before) / 60_000;
        assert_eq!(minutes(None), 1);
        for (count, expected) in [(1, 2), (2, 4), (3, 8), (4, 15), (5, 15), (u32::MAX, 15)] {
            assert_eq!(minutes(Some(&Deferral::sample(DeferReason::Unavailable, count))), expected, "{count}");
        }
        assert_eq!(minutes(Some(&Deferral::sample(DeferReason::QuietHours, 7))), 1, "for the first time");
    }
}
