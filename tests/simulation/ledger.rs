//! Every entry that was ever in the histories of the fake nodes, and how it came and went: the checker's memory.

use weir_core::history::Entry;

use super::prelude::*;

/// Bytes of an entry in a history.
pub const ENTRY: usize = 20;

/// An entry of a history: user's field, time, id.
pub type Mark = (Vec<u8>, i64, IdHash);

#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub cost: u8,
    pub restored: bool,
    /// When it was first written.
    pub first: Duration,
    /// When it was last written or restored.
    pub since: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Refund,
    Rebuild,
    /// A plain command, or a script that executes some.
    Plain,
    Other,
}

impl Writer {
    pub fn of_script(script: &Script) -> Self {
        match ["refund", "rebuild", "guarded"].map(|name| script.is(name)) {
            [true, ..] => Self::Refund,
            [_, true, _] => Self::Rebuild,
            [_, _, true] => Self::Plain,
            [false, false, false] => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
pub struct Ledger {
    pub ever: BTreeMap<Mark, Known>,
    /// Entries that were deleted or lost with a node, and that no failover restored.
    pub by_failover: BTreeSet<Mark>,
    pub by_wipe: BTreeSet<Mark>,
    /// Entries that a failover once forgot, though they may be back.
    pub missed: BTreeSet<Mark>,
    /// Entries that a full history dropped for younger ones.
    pub dropped: BTreeSet<Mark>,
    /// Entries that a refund removed.
    pub taken_back: BTreeSet<Mark>,
    /// How long entries are kept, in milliseconds.
    pub history_ms: i64,
    /// Entries that were removed once that was over.
    pub expired: BTreeSet<Mark>,
    /// The most entries of a user, where there is a bound.
    pub bound: Option<usize>,
    /// Users whose history was full: a restored entry may be too old for it.
    pub full: BTreeSet<Vec<u8>>,
    pub broken: BTreeSet<String>,
}

/// Whether this is a user's history: fields of users, who are numbers here, are numbers; and so are those of the campaigns'
/// names, which are short. A text, which has no field, is none.
pub fn is_history(field: &[u8], packed: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(u8::is_ascii_digit) && packed.len() >= ENTRY
}

/// The entries of a history, oldest first.
pub fn entries<'p>(field: &[u8], packed: &'p [u8]) -> impl Iterator<Item = &'p [u8; ENTRY]> {
    let packed = if is_history(field, packed) { packed } else { &[] };
    packed.as_chunks::<ENTRY>().0.iter()
}

fn marked(field: &[u8], entry: &[u8; ENTRY]) -> (Mark, Entry) {
    let entry = Entry::from_bytes(entry);
    ((field.to_vec(), entry.at.millis(), entry.id), entry)
}

/// The marks of all entries of a key.
pub fn marks(item: Option<&Item>) -> BTreeSet<Mark> {
    let Some(Item::Hash(hash)) = item else { return BTreeSet::new() };
    let of = |(field, packed): (&Vec<u8>, &Vec<u8>)| -> Vec<Mark> {
        entries(field, packed).map(|entry| marked(field, entry).0).collect()
    };
    hash.iter().flat_map(of).collect()
}

impl Ledger {
    pub fn write(&mut self, now: Duration, writer: Writer, change: &Change) {
        let Change { field, old, new, .. } = change;
        let (old, new) = (old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
        let whole = old.len() - old.len() % ENTRY;
        // Most writes only add to the end.
        let same = if new.len() >= whole && new[..whole] == old[..whole] { whole } else { 0 };
        let count = entries(field, new).count();
        if self.bound.is_some_and(|bound| count >= bound) {
            self.full.insert(field.clone());
        }
        if let Some(bound) = self.bound.filter(|bound| count > *bound) {
            self.broken
                .insert(format!("bound: the history of {} has {count} entries of {bound}: {writer:?}", text(field)));
        }
        let before: BTreeSet<Mark> = entries(field, &old[same..]).map(|entry| marked(field, entry).0).collect();
        let mut after = BTreeSet::new();
        let added = if is_history(field, new) { &new[same..] } else { &[] };
        for entry in added.as_chunks::<ENTRY>().0 {
            let (mark, entry) = marked(field, entry);
            if !before.contains(&mark) {
                self.appears(now, mark.clone(), &entry);
            }
            after.insert(mark);
        }
        for gone in before.difference(&after) {
            self.goes((now, writer), gone, &after, count);
        }
    }

    fn appears(&mut self, now: Duration, mark: Mark, entry: &Entry) {
        // What was forgotten may be recorded again, at the same time even: a batch has one clock.
        self.by_failover.remove(&mark);
        self.by_wipe.remove(&mark);
        self.dropped.remove(&mark);
        let first = self.ever.get(&mark).map_or(now, |known| known.first);
        self.ever.insert(mark, Known { cost: entry.cost, restored: entry.origin.0 == 0, first, since: now });
    }

    fn goes(&mut self, (now, writer): (Duration, Writer), gone: &Mark, after: &BTreeSet<Mark>, count: usize) {
        let replaced = || after.iter().any(|(_, _, id)| *id == gone.2);
        match writer {
            Writer::Refund => _ = self.taken_back.insert(gone.clone()),
            Writer::Plain => _ = self.by_wipe.insert(gone.clone()),
            // One of a send that was decided twice.
            Writer::Rebuild if replaced() => {}
            // By a clock that may be ahead.
            Writer::Rebuild | Writer::Other if gone.1 + self.history_ms <= wall_ms(now) + MAX_SKEW_MS => {
                self.expired.insert(gone.clone());
            }
            Writer::Rebuild | Writer::Other if self.bound.is_some_and(|bound| count >= bound) => {
                self.dropped.insert(gone.clone());
            }
            Writer::Rebuild | Writer::Other => {
                self.broken.insert(format!("an entry of {} of {} vanished: {:?}", text(&gone.0), gone.1, gone.2));
            }
        }
    }

    /// Nodes have `kept` in the place of `had`. Gives what is forgotten.
    fn replaced(&mut self, now: Duration, had: Option<&Item>, kept: Option<&Item>) -> BTreeSet<Mark> {
        let (had, kept) = (marks(had), marks(kept));
        for back in kept.difference(&had) {
            if let Some(known) = self.ever.get_mut(back) {
                known.since = now;
            }
        }
        let forgotten = &had - &kept;
        self.missed.extend(forgotten.iter().cloned());
        forgotten
    }

    /// A replica with `kept` takes over from a primary with `had`; returns how many entries are forgotten.
    pub fn fails_over(&mut self, now: Duration, had: Option<&Item>, kept: Option<&Item>) -> usize {
        let forgotten = self.replaced(now, had, kept);
        forgotten.into_iter().map(|lost| usize::from(self.by_failover.insert(lost))).sum()
    }

    /// A node comes back with `kept`, which a rebuild is to complete.
    pub fn comes_back(&mut self, now: Duration, had: Option<&Item>, kept: Option<&Item>) {
        let forgotten = self.replaced(now, had, kept);
        self.by_wipe.extend(forgotten);
    }

    pub fn wiped(&mut self, item: &Item) {
        self.by_wipe.extend(marks(Some(item)));
    }
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}
