//! What is wrong with a route's offsets: logged once, shown as long as it lasts.

use crate::routes::offsets::OffsetsSeen;

#[derive(Debug, Default)]
pub(super) struct OffsetsTrouble {
    /// Why they are not known.
    pub(super) unknown: Option<String>,
    /// What is said of partitions that are behind.
    pub(super) behind: Option<String>,
}

impl OffsetsTrouble {
    /// Says what is new by a look.
    pub(super) fn note(&mut self, route: &str, look: &OffsetsSeen) {
        let unknown = [look.lag.as_ref().err(), look.waiting.as_ref().err()].into_iter().flatten().next().cloned();
        if unknown != self.unknown {
            match &unknown {
                Some(reason) => tracing::warn!(route, "the route's offsets are not known: {reason}"),
                None => tracing::info!(route, "the route's offsets are known again"),
            }
        }
        let behind = if look.lag.is_ok() { look.behind_in_words() } else { self.behind.clone() };
        if behind != self.behind {
            match &behind {
                Some(words) => tracing::warn!(route, "{words}"),
                None => tracing::info!(route, "no partition is behind the others any more"),
            }
        }
        *self = Self { unknown, behind };
    }
}
