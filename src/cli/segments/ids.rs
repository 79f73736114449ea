//! Reads user ids from files, in bounded memory apart from what is made of them.

use std::{collections::HashMap, path::Path};

use indicatif::ProgressBar;
use roaring::RoaringTreemap;
use weir_core::segment::{Blocks, MAX_SEGMENTS, Members, UserIdKind, UserIds, text_problem};

use super::input::{Lines, Records, id_text, shown};
use crate::cli::exit::UsageError;

/// The longest user id, in bytes, as in an intent.
const MAX_USER_ID_BYTES: usize = 256;

#[derive(Debug)]
enum Gathering {
    U32(Blocks),
    U64(RoaringTreemap),
    Hash64(Vec<u64>),
}

/// Segments whose members are still being gathered, in the order in which they were named.
#[derive(Debug)]
pub(super) struct Gatherer {
    ids: UserIds,
    segments: Vec<(String, Gathering)>,
    places: HashMap<String, usize>,
}

impl Gatherer {
    pub(super) fn new(ids: UserIds) -> Self {
        Self { ids, segments: Vec::new(), places: HashMap::new() }
    }

    /// The place of the segment of this name, which is a new one if there is none yet.
    pub(super) fn segment(&mut self, name: &str) -> Result<usize, UsageError> {
        if let Some(&at) = self.places.get(name) {
            return Ok(at);
        }
        if self.segments.len() == MAX_SEGMENTS {
            return Err(UsageError(format!(
                "segment `{name}` is one too many: a set has at most {MAX_SEGMENTS}; is this column really the segment?"
            )));
        }
        let gathering = match self.ids.kind() {
            UserIdKind::U32 => Gathering::U32(Blocks::default()),
            UserIdKind::U64 => Gathering::U64(RoaringTreemap::new()),
            UserIdKind::Hash64 => Gathering::Hash64(Vec::new()),
        };
        self.segments.push((name.to_owned(), gathering));
        self.places.insert(name.to_owned(), self.segments.len() - 1);
        Ok(self.segments.len() - 1)
    }

    /// Puts a user into the segment at this place; tells what is wrong with an id that cannot be in one.
    fn put(&mut self, segment: usize, user_id: &[u8]) -> Result<(), String> {
        let text = id_text(user_id)?;
        if text.is_empty() || text.len() > MAX_USER_ID_BYTES {
            return Err(format!("an id of {} bytes; ids have 1 to {MAX_USER_ID_BYTES}", text.len()));
        }
        let kind = self.ids.kind();
        let number = self.ids.number(text).ok_or_else(|| {
            format!(
                "`{}` is not a {kind} id (digits, no leading zero or sign, in range); see --user-id",
                shown(user_id)
            )
        })?;
        match &mut self.segments[segment].1 {
            Gathering::U32(ids) => {
                let id = u32::try_from(number).map_err(|_| format!("`{}` is not below 2^32", shown(user_id)))?;
                ids.insert(id);
            }
            Gathering::U64(ids) => {
                ids.insert(number);
            }
            Gathering::Hash64(hashes) => add_hash(hashes, number),
        }
        Ok(())
    }

    /// Reads a file of ids, one a line, into a segment.
    pub(super) fn lines(&mut self, segment: usize, path: &Path, progress: &ProgressBar) -> anyhow::Result<()> {
        let mut lines = Lines::open(path, progress)?;
        while let Some(id) = lines.next()? {
            self.put(segment, id).map_err(|problem| lines.wrong(problem))?;
        }
        Ok(())
    }

    /// Reads a CSV file with the columns `user_id` and `segment`, among others.
    pub(super) fn csv(&mut self, path: &Path, progress: &ProgressBar) -> anyhow::Result<()> {
        let mut records = Records::open(path, ["user_id", "segment"], progress)?;
        while let Some([user_id, segment]) = records.next()? {
            let placed = self.place(segment).and_then(|place| self.put(place, user_id));
            placed.map_err(|problem| records.wrong(problem))?;
        }
        Ok(())
    }

    /// The place of the segment that a record names.
    fn place(&mut self, segment: &[u8]) -> Result<usize, String> {
        let name = std::str::from_utf8(segment).map_err(|_| "the segment is not UTF-8".to_owned())?;
        if name.is_empty() {
            return Err("no segment; give each user one".to_owned());
        }
        if let Some(problem) = text_problem(name) {
            return Err(format!("the segment's name {problem}; does a quote not end?"));
        }
        self.segment(name).map_err(|error| error.to_string())
    }

    /// The segments with their members, made small.
    pub(super) fn finish(self) -> Vec<(String, Members)> {
        let finish = |gathering| match gathering {
            Gathering::U32(mut ids) => {
                ids.optimize();
                Members::U32(ids)
            }
            Gathering::U64(mut ids) => {
                ids.optimize();
                Members::U64(ids)
            }
            Gathering::Hash64(mut hashes) => {
                hashes.sort_unstable();
                hashes.dedup();
                Members::Hash64(hashes.into_boxed_slice())
            }
        };
        self.segments.into_iter().map(|(name, gathering)| (name, finish(gathering))).collect()
    }
}

/// Adds a hash. Before the list is made longer, those that are there twice go, so that input that repeats itself takes
/// no more memory than its users.
fn add_hash(hashes: &mut Vec<u64>, hash: u64) {
    if hashes.len() == hashes.capacity() && !hashes.is_empty() {
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.len() > hashes.capacity() / 2 {
            hashes.reserve(hashes.len());
        }
    }
    hashes.push(hash);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_come_again_and_again_take_no_more_memory() {
        let mut hashes = Vec::new();
        for number in 0..1_000_000_u64 {
            add_hash(&mut hashes, number % 1000);
        }
        assert!(hashes.capacity() <= 4096, "{}", hashes.capacity());
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes, (0..1000).collect::<Vec<_>>());
    }
}
