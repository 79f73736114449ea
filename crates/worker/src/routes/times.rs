//! How long deliveries of a route took, by the reports that this instance has read.

use weir_core::limit::route::permits::mean_us;

/// The mean of fewer reports says nothing: what is usual would begin with them.
const ENOUGH: u64 = 20;

/// Sums of reports, as [`weir_core::limit::route::routes::RouteState::times`] has them.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveryTimes {
    /// At the last look.
    noted: (u64, u64),
    /// The sums that other instances know.
    passed_on: (u64, u64),
    /// Of how many reports there is a mean, and the mean.
    reported: u64,
    mean_us: u64,
}

impl DeliveryTimes {
    /// Nothing is known of what was reported before.
    pub(super) fn new(noted: (u64, u64)) -> Self {
        Self { noted, passed_on: noted, ..Self::default() }
    }

    /// Takes what was reported since the last look into the mean; gives what is to be passed on.
    pub(super) fn look(&mut self, sums: (u64, u64)) -> (u64, u64) {
        let new = between(self.noted, sums);
        self.reported = self.reported.saturating_add(new.0);
        self.mean_us = mean_us(self.mean_us, new);
        self.noted = sums;
        between(self.passed_on, sums)
    }

    /// What the last look gave is passed on.
    pub(super) fn pass_on(&mut self) {
        self.passed_on = self.noted;
    }

    /// The mean of about the last 20, in milliseconds; `None`: so many were not reported yet.
    pub(super) fn mean_ms(&self) -> Option<u64> {
        Some(self.mean_us.div_ceil(1_000)).filter(|ms| *ms > 0 && self.reported >= ENOUGH)
    }
}

fn between(from: (u64, u64), to: (u64, u64)) -> (u64, u64) {
    (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_passed_on_until_they_are_known_and_counted_once_here() {
        let mut times = DeliveryTimes::new((5, 1_000));
        assert_eq!((times.look((5, 1_000)), times.mean_ms()), ((0, 0), None), "what was before is not known");
        assert_eq!((times.look((9, 1_400)), times.mean_ms()), ((4, 400), None), "4 say nothing");
        assert_eq!((times.look((25, 3_000)), times.mean_ms()), ((20, 2_000), Some(100)), "nobody has answered");
        assert_eq!((times.look((25, 3_000)), times.mean_ms()), ((20, 2_000), Some(100)));
        times.pass_on();
        assert_eq!((times.look((45, 9_000)), times.mean_ms()), ((20, 6_000), Some(200)));
    }
}
