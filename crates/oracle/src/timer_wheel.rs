//! A hierarchical timer wheel: a value for each deadline, with insert and cancel in constant time however many there are, and
//! advance in constant time per value and level.
//!
//! Level 0 has a slot per tick, and each further level slots that are 64 times as long. A value is in the lowest level whose round
//! holds both its deadline and the current tick. When time reaches a slot of a higher level, its values move down; each moves at most
//! three times. A bitmap per level finds the next occupied slot, so empty ticks cost nothing.
//! (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987.)

/// Slots of a level, as a power of two: one bit of a `u64` each.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// The furthest deadline ahead of the wheel, in ticks: 4.6 hours of milliseconds.
pub const MAX_AHEAD: u64 = (1 << (SLOT_BITS * 4)) - 1;
const NONE: u32 = u32::MAX;
/// The most values of any wheel.
const MOST: usize = 1 << 24;

/// Names a value in the wheel; a value that is gone is never mistaken for a later one, within 2^32 uses of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey {
    place: u32,
    generation: u32,
}

impl TimerKey {
    pub fn to_number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.place)
    }

    pub fn from_number(number: u64) -> Self {
        let part = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(NONE);
        Self { place: part(number), generation: part(number >> 32) }
    }
}

#[derive(Debug, Clone)]
struct TimerEntry<T> {
    /// `None`: the place is free, and `next` is the next free one.
    value: Option<T>,
    deadline: u64,
    generation: u32,
    /// Its slot, over all levels.
    slot: u16,
    before: u32,
    next: u32,
}

/// See the module. Ticks are those of the caller, such as milliseconds of a monotonic clock.
#[derive(Debug, Clone)]
pub struct TimerWheel<T> {
    now: u64,
    entries: Vec<TimerEntry<T>>,
    first_free: u32,
    len: usize,
    most: usize,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
}

impl<T> TimerWheel<T> {
    /// An empty wheel at this tick, for so many values at most.
    pub fn new(now: u64, most: usize) -> Self {
        let (entries, heads) = (Vec::new(), [[NONE; SLOTS]; LEVELS]);
        Self { now, entries, first_free: NONE, len: 0, most: most.min(MOST), occupied: [0; LEVELS], heads }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_full(&self) -> bool {
        self.len >= self.most
    }

    /// Adds a value that expires at this tick: at the next one where that has passed, and within [`MAX_AHEAD`]. `None`: it is full.
    pub fn insert(&mut self, deadline: u64, value: T) -> Option<TimerKey> {
        if self.is_full() {
            return None;
        }
        let deadline = deadline.clamp(self.now + 1, self.now + MAX_AHEAD);
        let place = self.place_for(TimerEntry {
            value: Some(value),
            deadline,
            generation: 0,
            slot: 0,
            before: NONE,
            next: NONE,
        });
        self.link(place);
        self.len += 1;
        Some(TimerKey { place, generation: self.entry(place).generation })
    }

    pub fn get(&self, key: TimerKey) -> Option<&T> {
        let entry = self.entries.get(key.place as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    /// Removes a value before it expires; `None` where it is gone already.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        self.get(key)?;
        self.unlink(key.place);
        self.remove(key.place)
    }

    /// Moves to this tick. `expired` gets every value whose deadline is reached, the earlier ones first.
    pub fn advance(&mut self, to: u64, mut expired: impl FnMut(TimerKey, T)) {
        while let Some((level, slot, at)) = self.next_slot().filter(|(_, _, at)| *at <= to) {
            self.now = at;
            self.occupied[level] &= !(1 << slot);
            let mut place = std::mem::replace(&mut self.heads[level][slot], NONE);
            while place != NONE {
                let next = self.entry(place).next;
                if self.entry(place).deadline > self.now {
                    self.link(place);
                } else {
                    let key = TimerKey { place, generation: self.entry(place).generation };
                    if let Some(value) = self.remove(place) {
                        expired(key, value);
                    }
                }
                place = next;
            }
        }
        self.now = self.now.max(to);
    }

    /// The next occupied slot, and the tick at which it begins. Slots of lower levels come first: their entries are due within
    /// the current slot of the level above.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        self.occupied
            .iter()
            .enumerate()
            .filter(|(_, occupied)| **occupied != 0)
            .map(|(level, occupied)| {
                let shift = bits_below(level);
                let current = (self.now >> shift) as usize % SLOTS;
                // The current slot comes last: its entries belong to the next round, which only the highest level has.
                let distance = occupied.rotate_right((current as u32 + 1) % u64::BITS).trailing_zeros() as usize + 1;
                let begin = ((self.now >> shift) + distance as u64) << shift;
                (level, (current + distance) % SLOTS, begin)
            })
            .min_by_key(|(level, _, begin)| (*begin, *level))
    }

    /// Puts an entry at the head of its slot's list.
    fn link(&mut self, place: u32) {
        let deadline = self.entry(place).deadline;
        let level = ((self.now ^ deadline | 1).ilog2() / SLOT_BITS).min(LEVELS as u32 - 1) as usize;
        let slot = (deadline >> bits_below(level)) as usize % SLOTS;
        let next = std::mem::replace(&mut self.heads[level][slot], place);
        self.occupied[level] |= 1 << slot;
        if next != NONE {
            self.entry_mut(next).before = place;
        }
        let entry = self.entry_mut(place);
        (entry.before, entry.next, entry.slot) = (NONE, next, (level * SLOTS + slot) as u16);
    }

    /// Takes an entry out of its slot's list.
    fn unlink(&mut self, place: u32) {
        let TimerEntry { before, next, slot, .. } = *self.entry(place);
        let (level, slot) = (usize::from(slot) / SLOTS, usize::from(slot) % SLOTS);
        if next != NONE {
            self.entry_mut(next).before = before;
        }
        if before != NONE {
            self.entry_mut(before).next = next;
        } else {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
    }

    /// Puts an entry into a free place.
    fn place_for(&mut self, mut entry: TimerEntry<T>) -> u32 {
        if self.first_free == NONE {
            self.entries.push(entry);
            return (self.entries.len() - 1) as u32;
        }
        let place = self.first_free;
        let free = self.entry_mut(place);
        entry.generation = free.generation;
        let next = std::mem::replace(free, entry).next;
        self.first_free = next;
        place
    }

    /// Frees a place that is in no list any more.
    fn remove(&mut self, place: u32) -> Option<T> {
        let first_free = std::mem::replace(&mut self.first_free, place);
        let entry = self.entry_mut(place);
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = first_free;
        let value = entry.value.take();
        self.len -= 1;
        value
    }

    fn entry(&self, place: u32) -> &TimerEntry<T> {
        &self.entries[place as usize]
    }

    fn entry_mut(&mut self, place: u32) -> &mut TimerEntry<T> {
        &mut self.entries[place as usize]
    }
}

/// How many bits of a tick are below the slots of a level.
fn bits_below(level: usize) -> u32 {
    level as u32 * SLOT_BITS
}

#[cfg(test)]
mod tests;
