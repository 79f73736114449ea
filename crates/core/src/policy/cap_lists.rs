//! The lists of caps that a batch meets: there may be many segments, and a batch has users of few.

use std::sync::Arc;

use super::{Cap, CapWindow, Caps, Policy};

/// Which caps of a list, by index: 255 at most.
pub(super) type Mask = [u64; 4];

/// The caps of one segment, or the default's.
#[derive(Debug)]
pub(super) struct CapList {
    pub(super) caps: Arc<Caps>,
    /// Whether each of them asks for all intents, and looks back the same in all zones: then there is one set for all.
    pub(super) uniform: bool,
    /// The sets that have been made of it and have no zone, by the caps in them: one for each kind of class at most.
    pub(super) made: Vec<(Mask, usize)>,
}

impl CapList {
    fn new(caps: &Arc<Caps>) -> Self {
        let everywhere = |cap: &Cap| cap.filter.is_everything() && !matches!(cap.window, CapWindow::Per(_));
        Self { caps: Arc::clone(caps), uniform: caps.list().iter().all(everywhere), made: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct CapLists {
    /// The names of the set's segments, in its order.
    segments: Arc<[Box<str>]>,
    /// The place of the list of each segment; `None` where nobody has asked for it.
    places: Vec<Option<usize>>,
    /// The default's, then those that were asked for, in that order.
    lists: Vec<CapList>,
}

impl CapLists {
    /// The place of the default's list.
    pub(super) const DEFAULT: usize = 0;

    pub(super) fn new(policy: &Policy, segments: Arc<[Box<str>]>) -> Self {
        Self { places: vec![None; segments.len()], segments, lists: vec![CapList::new(&policy.default)] }
    }

    /// The place of the list of a segment, which is known by its place in the set: the default's where the policy does not name it, or the
    /// set has none there.
    #[inline]
    pub(super) fn of(&mut self, segment: usize, policy: &Policy) -> usize {
        match self.places.get(segment) {
            Some(Some(place)) => *place,
            Some(None) => self.find(segment, policy),
            None => Self::DEFAULT,
        }
    }

    #[inline(never)]
    fn find(&mut self, segment: usize, policy: &Policy) -> usize {
        let place = match policy.segments.get(&*self.segments[segment]) {
            Some(caps) => {
                self.lists.push(CapList::new(caps));
                self.lists.len() - 1
            }
            None => Self::DEFAULT,
        };
        self.places[segment] = Some(place);
        place
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> &CapList {
        &self.lists[place]
    }

    /// A set that has no zone is made of these caps of a list.
    pub(super) fn made(&mut self, place: usize, mask: Mask, number: usize) {
        self.lists[place].made.push((mask, number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{basis::document::Format, policy::file::parse_policy};

    #[test]
    fn of_many_segments_those_are_looked_up_that_are_asked_for() {
        let name = |number: usize| format!("s{number}");
        let caps: String = (0..200).map(|n| format!("[segments.{}]\ncaps = \"unlimited\"\n", name(n))).collect();
        let text = format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n{caps}");
        let policy = parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap();
        let names = (0..400).map(|number| Box::<str>::from(name(number))).collect();
        let mut lists = CapLists::new(&policy, names);
        assert_eq!(lists.lists.len(), 1, "the default's");
        for _ in 0..2 {
            assert_eq!([199, 7, 200, 500].map(|segment| lists.of(segment, &policy)), [1, 2, 0, 0]);
        }
        assert_eq!((lists.lists.len(), lists.places.iter().flatten().count()), (3, 3));
    }
}
