//! What lanes are given while the store does not answer.

/// Permits that lanes were given without the store, and that it has not granted since.
///
/// They were not taken out of the route's rate: what is left of them is not returned to that, and what the store grants next, with a turn
/// that is made again too, is for them first. So a lost reply neither burns permits nor doubles them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GivenAlone(u64);

impl GivenAlone {
    pub(super) const fn permits(self) -> u64 {
        self.0
    }

    pub(super) const fn give(&mut self, permits: u64) {
        self.0 = self.0.saturating_add(permits);
    }

    /// So many permits are for these first, because they come back from lanes, or the store grants them; gives what is beyond.
    pub(super) fn settle(&mut self, permits: u64) -> u64 {
        let settled = permits.min(self.0);
        self.0 -= settled;
        permits - settled
    }

    /// Forgets what is more than that.
    pub(super) fn forget_above(&mut self, most: u64) {
        self.0 = self.0.min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_alone_is_settled_first_and_once() {
        let mut alone = GivenAlone::default();
        alone.give(2);
        alone.give(3);
        assert_eq!([alone.settle(3), alone.settle(4), alone.settle(4)], [0, 2, 4]);
        alone.give(9);
        alone.forget_above(2);
        assert_eq!((alone.permits(), alone.settle(5)), (2, 3));
    }
}
