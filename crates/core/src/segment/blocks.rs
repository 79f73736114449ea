//! 32-bit ids as one bitmap for each block of 65,536.

use roaring::RoaringBitmap;

use super::SetOperation;

/// Bits of an id within its block.
const BLOCK_BITS: u32 = 16;

/// A set of 32-bit ids, cut into one bitmap for each 65,536 of them.
///
/// One bitmap of all looks for the block of an id among thousands with each question, and the processor guesses wrong on the
/// way. Here the block is found by its number, so that questions of a batch can wait for memory side by side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blocks {
    /// The blocks that have members, ascending: the upper half of their ids.
    keys: Vec<u16>,
    /// Who is in each; whole ids, all of them of that block, and never none.
    bitmaps: Vec<RoaringBitmap>,
    /// By block, up to the last one: its place among the others, if it is there; what it says of others is of no use.
    places: Vec<u16>,
}

pub const fn block_of(id: u32) -> u16 {
    (id >> BLOCK_BITS) as u16
}

impl Blocks {
    /// Adds a block's members; `None`, and nothing is added, unless all are of one block above those that are here.
    pub fn push(&mut self, bitmap: RoaringBitmap) -> Option<()> {
        let key = block_of(bitmap.min()?);
        let fits =
            bitmap.max().is_some_and(|id| block_of(id) == key) && self.keys.last().is_none_or(|last| *last < key);
        fits.then(|| self.put(self.keys.len(), key, bitmap))
    }

    pub fn insert(&mut self, id: u32) {
        let key = block_of(id);
        // Ids come ascending as a rule, and then the block is the last one.
        let place = match self.keys.last() {
            Some(last) if *last == key => Ok(self.keys.len() - 1),
            _ => self.keys.binary_search(&key),
        };
        let at = place.unwrap_or_else(|at| {
            self.put(at, key, RoaringBitmap::new());
            at
        });
        self.bitmaps[at].insert(id);
    }

    fn put(&mut self, at: usize, key: u16, bitmap: RoaringBitmap) {
        self.keys.insert(at, key);
        self.bitmaps.insert(at, bitmap);
        let blocks = self.keys.last().map_or(0, |last| usize::from(*last) + 1);
        self.places.resize(blocks, 0);
        // No two keys are the same, so their places fit. To zip them with a range and skip would pass over each of those before.
        for (place, key) in self.keys.iter().enumerate().skip(at) {
            self.places[usize::from(*key)] = place as u16;
        }
    }

    /// Makes each block as small as it can be.
    pub fn optimize(&mut self) {
        for bitmap in &mut self.bitmaps {
            bitmap.optimize();
        }
        self.keys.shrink_to_fit();
        self.bitmaps.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    pub fn len(&self) -> u64 {
        self.bitmaps.iter().map(RoaringBitmap::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn contains(&self, id: u32) -> bool {
        self.block(block_of(id)).is_some_and(|bitmap| bitmap.contains(id))
    }

    pub(super) fn block(&self, key: u16) -> Option<&RoaringBitmap> {
        let place = usize::from(*self.places.get(usize::from(key))?);
        (self.keys.get(place) == Some(&key)).then(|| &self.bitmaps[place])
    }

    /// The bitmap of each block, ascending.
    pub fn bitmaps(&self) -> impl Iterator<Item = &RoaringBitmap> {
        self.bitmaps.iter()
    }

    pub fn to_bitmap(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        self.bitmaps.iter().for_each(|bitmap| all |= bitmap);
        all
    }

    /// The ids from this one on, ascending.
    pub fn range_from(&self, start: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.keys.partition_point(|key| *key < block_of(start));
        self.bitmaps[first..].iter().flat_map(move |bitmap| bitmap.range(start..))
    }

    pub fn intersection_len(&self, other: &Self) -> u64 {
        self.in_both(other).map(|(ours, theirs)| ours.intersection_len(theirs)).sum()
    }

    /// The ids that are in both, ascending.
    pub fn intersection<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u32> + 'a {
        self.in_both(other).flat_map(|(ours, theirs)| ours & theirs)
    }

    #[must_use]
    pub fn combined(&self, operation: SetOperation, other: &Self) -> Self {
        let (none, mut combined) = (RoaringBitmap::new(), Self::default());
        let mut keys = [&self.keys[..], &other.keys[..]].concat();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (ours, theirs) = (self.block(key).unwrap_or(&none), other.block(key).unwrap_or(&none));
            let block = match operation {
                SetOperation::Union => ours | theirs,
                SetOperation::Intersect => ours & theirs,
                SetOperation::Minus => ours - theirs,
            };
            // Nobody in it is nothing to add.
            let _ = combined.push(block);
        }
        combined
    }

    fn in_both<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a RoaringBitmap, &'a RoaringBitmap)> {
        let ours = self.keys.iter().zip(&self.bitmaps);
        ours.filter_map(|(key, bitmap)| Some((bitmap, other.block(*key)?)))
    }
}

impl FromIterator<u32> for Blocks {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut blocks = Self::default();
        ids.into_iter().for_each(|id| blocks.insert(id));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sets() -> Vec<BTreeSet<u32>> {
        vec![
            BTreeSet::new(),
            BTreeSet::from([0]),
            BTreeSet::from([u32::MAX]),
            (0..300_000).step_by(7).collect(),
            (0..50).map(|n| n * n * 1_700_000).collect(),
            (65_530..65_540).chain(1_000_000..1_100_000).chain([u32::MAX]).collect(),
        ]
    }

    #[test]
    fn blocks_answer_as_the_set_that_they_are() {
        for set in sets() {
            let blocks: Blocks = set.iter().rev().copied().collect();
            assert_eq!((blocks.len(), blocks.is_empty()), (set.len() as u64, set.is_empty()));
            assert!(blocks.to_bitmap().iter().eq(set.iter().copied()));
            for id in set
                .iter()
                .step_by(1 + set.len() / 500)
                .flat_map(|id| [id.wrapping_sub(1), *id, id.wrapping_add(1)])
                .chain([5, 70_000])
            {
                assert_eq!(blocks.contains(id), set.contains(&id), "{id}");
                assert!(blocks.range_from(id).take(3).eq(set.range(id..).copied().take(3)), "from {id}");
            }
        }
    }

    #[test]
    fn a_block_is_taken_above_the_last_one_and_whole() {
        let mut blocks = Blocks::default();
        let cases: [(&[u32], bool); 6] = [
            (&[], false),
            (&[70_000, 70_001], true),
            (&[65_536], false),
            (&[5], false),
            (&[140_000, 9_000_000], false),
            (&[140_000], true),
        ];
        for (ids, taken) in cases {
            assert_eq!(blocks.push(ids.iter().copied().collect()).is_some(), taken, "{ids:?}");
        }
        assert!(blocks.range_from(0).eq([70_000, 70_001, 140_000]));
    }
}
