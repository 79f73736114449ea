//! Classes: what a send was, in few bytes.
//!
//! A history entry cannot carry the strings of its channel, category and campaign, so each pair of channel
//! and category (a *kind*) and each campaign has a number, given once by the store and kept for ever. Number 0
//! means "none given"; the highest number means "named after the table was full" and matches
//! every filter, so that a flood of invented names can never open a way around a cap.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{Hash, Hasher},
    sync::Arc,
};

use xxhash_rust::xxh3::xxh3_128;

/// The longest channel, category or campaign name that is kept as it is, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Number of a pair of channel and category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Kind(pub u16);

impl Kind {
    /// Neither channel nor category.
    pub const NONE: Self = Self(0);
    /// A kind that came after the table was full.
    pub const OVERFLOW: Self = Self(u16::MAX);
}

/// Number of a campaign, below 2^24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Campaign(pub u32);

impl Campaign {
    pub const NONE: Self = Self(0);
    /// A campaign that came after the table was full; counts as every campaign.
    pub const OVERFLOW: Self = Self(0x00FF_FFFF);
}

pub type ClassNumbers = (Kind, Campaign);

/// The names of an intent's class, as they came.
#[derive(Debug, Clone, Copy, Eq, Default)]
pub struct ClassNames<'a> {
    /// `push`, `email`, ...
    pub channel: Option<&'a str>,
    /// `marketing`, `transactional`, ...
    pub category: Option<&'a str>,
    pub campaign: Option<&'a str>,
}

/// Every intent's class is compared, so short names without a call.
impl PartialEq for ClassNames<'_> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let is_same = |one: Option<&str>, other: Option<&str>| match (one, other) {
            (Some(one), Some(other)) => is_same_name(one.as_bytes(), other.as_bytes()),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same(self.campaign, other.campaign)
            && is_same(self.channel, other.channel)
            && is_same(self.category, other.category)
    }
}

#[inline(always)]
fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && match one.len() {
            4..=8 => ends::<4>(one) == ends::<4>(other),
            9..=16 => ends::<8>(one) == ends::<8>(other),
            _ => one == other,
        }
}

/// The first and the last bytes of a name; they may overlap.
#[inline(always)]
fn ends<const N: usize>(name: &[u8]) -> Option<([u8; N], [u8; N])> {
    Some((*name.first_chunk()?, *name.last_chunk()?))
}

/// Every intent's class is hashed, so in few steps: the lengths together, then the texts, one after the other.
impl Hash for ClassNames<'_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let names = [self.channel, self.category, self.campaign];
        let lengths = names.map(|name| name.map_or(0, |name| name.len() as u64 + 1));
        state.write_u64(lengths[0] ^ lengths[1].rotate_left(21) ^ lengths[2].rotate_left(42));
        names.into_iter().flatten().for_each(|name| state.write(name.as_bytes()));
    }
}

/// The channels and categories that a cap counts; `None` means all of them, also intents without one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Filter {
    /// The channels, one of which the intent must have.
    pub channels: Option<BTreeSet<String>>,
    /// The categories, one of which the intent must have.
    pub categories: Option<BTreeSet<String>>,
}

impl Filter {
    pub fn matches(&self, channel: Option<&str>, category: Option<&str>) -> bool {
        is_among(&self.channels, channel) && is_among(&self.categories, category)
    }

    pub fn is_everything(&self) -> bool {
        self.channels.is_none() && self.categories.is_none()
    }
}

/// Whether a name is one of these; `None` means all of them, also none.
pub(super) fn is_among(names: &Option<BTreeSet<String>>, name: Option<&str>) -> bool {
    names.as_ref().is_none_or(|names| name.is_some_and(|name| names.contains(name)))
}

/// The name under which a string is numbered: itself, or for one longer than [`MAX_NAME_BYTES`] its first
/// characters and its 128-bit hash.
pub fn table_name(name: &str) -> std::borrow::Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return name.into();
    }
    let cut = (0..=64).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    format!("{}#{:032x}", &name[..cut], xxh3_128(name.as_bytes())).into()
}

/// A kind's names: channel and category.
pub type KindNames = (Option<String>, Option<String>);

/// The kinds known so far, in both directions. Numbers are given in order from 1. A number may have no name: one that was given and
/// lost with the node that held the names. It matches every filter, as [`Kind::OVERFLOW`] does, so that no cap is exceeded.
#[derive(Debug, Clone, Default)]
pub struct KindTable {
    names: Vec<Option<Arc<KindNames>>>,
    numbers: HashMap<Arc<KindNames>, Kind>,
}

impl KindTable {
    /// The table of these names; the first one is number 1.
    pub fn new(names: Vec<KindNames>) -> Self {
        let mut table = Self::default();
        for name in names {
            table.push(Some(name));
        }
        table
    }

    /// Adds the next kind, which may have no name, and returns its number, [`Kind::OVERFLOW`] where there is no room.
    pub fn push(&mut self, names: Option<KindNames>) -> Kind {
        let next = self.names.len() + 1;
        if next >= usize::from(Kind::OVERFLOW.0) {
            return Kind::OVERFLOW;
        }
        let kind = Kind(u16::try_from(next).unwrap_or(Kind::OVERFLOW.0));
        let names = names.map(Arc::new);
        if let Some(names) = &names {
            self.numbers.insert(Arc::clone(names), kind);
        }
        self.names.push(names);
        kind
    }

    /// The table with all other numbers, without names.
    #[must_use]
    pub fn with_all_numbers(mut self) -> Self {
        self.names.resize(usize::from(Kind::OVERFLOW.0) - 1, None);
        self
    }

    /// How many kinds are known, which is also the highest number given.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of a pair of names, if it has one. The pair of two absent names is [`Kind::NONE`].
    pub fn number(&self, names: &KindNames) -> Option<Kind> {
        if names.0.is_none() && names.1.is_none() { Some(Kind::NONE) } else { self.numbers.get(names).copied() }
    }

    pub fn names(&self, kind: Kind) -> Option<&KindNames> {
        self.names.get(usize::from(kind.0).checked_sub(1)?)?.as_deref()
    }

    /// The kinds that a filter matches, ascending; `None` if it matches everything.
    /// [`Kind::OVERFLOW`] is always among them.
    pub fn matching(&self, filter: &Filter) -> Option<BTreeSet<Kind>> {
        if filter.is_everything() {
            return None;
        }
        let known = self.names.iter().zip(1_u16..);
        let mut kinds: BTreeSet<Kind> = known
            .filter(|(names, _)| {
                let matches = |(channel, category): &KindNames| filter.matches(channel.as_deref(), category.as_deref());
                names.as_deref().is_none_or(matches)
            })
            .map(|(_, number)| Kind(number))
            .collect();
        kinds.insert(Kind::OVERFLOW);
        Some(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_same_where_all_names_are_whatever_their_length() {
        fn class(name: &str) -> ClassNames<'_> {
            ClassNames { channel: None, category: Some("c"), campaign: Some(name) }
        }
        let text = "abcdefghijklmnopqrstuvwxyz";
        for length in 1..=text.len() {
            let name = &text[..length];
            let copy = String::from(name);
            assert_eq!(class(name), class(&copy));
            for place in 0..length {
                let other = [&text[..place], "-", &text[place + 1..length]].concat();
                assert_ne!(class(name), class(&other));
            }
            assert_ne!(class(name), class(&text[..length - 1]));
            assert_ne!(class(name), ClassNames { category: None, ..class(name) });
        }
        assert_ne!(class(""), ClassNames { campaign: None, ..class("") });
    }
}
