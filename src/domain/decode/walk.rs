//! One walk through a value, picking up what stands at the places that are read.

use serde::{
    Deserializer as _,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Deserializer, value::RawValue};

use super::{
    super::{
        dead_letter::DeadLetter,
        fields::trie::{Child, Slot, Trie},
    },
    json::{self, JsonKind},
};

/// What stood at the places that are read: pieces of the value.
#[derive(Debug)]
pub(super) struct Found<'t, 'a> {
    raws: [Option<&'a str>; Slot::COUNT],
    twice: Option<&'t str>,
}

impl<'t, 'a> Found<'t, 'a> {
    /// The JSON at a place; `None` where it is absent or null.
    pub(super) fn raw(&self, slot: Slot) -> Option<&'a str> {
        self.raws[slot.index()].filter(|raw| JsonKind::of(raw) != JsonKind::Null)
    }

    /// The first place that is given twice, as a pointer.
    pub(super) const fn twice(&self) -> Option<&'t str> {
        self.twice
    }
}

/// Walks through an object.
///
/// # Errors
/// The text is not JSON.
pub(super) fn walk<'t, 'a>(trie: &'t Trie, text: &'a str) -> Result<Found<'t, 'a>, DeadLetter> {
    let mut found = Found { raws: [None; Slot::COUNT], twice: None };
    let mut json = Deserializer::from_str(text);
    json.deserialize_map(Inside { trie, node: 0, found: &mut found })
        .and_then(|()| json.end())
        .map_err(|error| json::not_json(text, &error))?;
    Ok(found)
}

/// An object or array that places lie in.
struct Inside<'t, 'f, 'a> {
    trie: &'t Trie,
    node: usize,
    found: &'f mut Found<'t, 'a>,
}

impl<'t, 'a> Inside<'t, '_, 'a> {
    fn children(&self) -> &'t [Child] {
        &self.trie.node(self.node).children
    }

    /// Takes what a child leads to, and walks on into it where places lie further in.
    ///
    /// The piece was parsed once to find its end; pieces with places in them are walked a second time.
    fn take(&mut self, child: &'t Child, raw: &'a RawValue) -> Result<(), serde_json::Error> {
        let node = self.trie.node(child.node);
        for slot in &node.slots {
            self.found.raws[slot.index()] = Some(raw.get());
        }
        if node.children.is_empty() {
            return Ok(());
        }
        let inside = Inside { trie: self.trie, node: child.node, found: self.found };
        let mut json = Deserializer::from_str(raw.get());
        match JsonKind::of(raw.get()) {
            JsonKind::Object => json.deserialize_map(inside),
            JsonKind::Array => json.deserialize_seq(inside),
            JsonKind::String | JsonKind::Number | JsonKind::Boolean | JsonKind::Null => Ok(()),
        }
    }
}

impl<'a> Visitor<'a> for Inside<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut members: M) -> Result<(), M::Error> {
        let children = self.children();
        let mut seen = 0_u64;
        while let Some(place) = members.next_key_seed(Name(children))? {
            let Some(place) = place else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let child = &children[place];
            if seen & (1 << place) != 0 {
                self.found.twice.get_or_insert(self.trie.node(child.node).pointer.as_str());
            }
            seen |= 1 << place;
            self.take(child, members.next_value()?).map_err(M::Error::custom)?;
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'a>>(mut self, mut elements: S) -> Result<(), S::Error> {
        for number in 0.. {
            let child = self.children().iter().find(|child| child.element == Some(number));
            let more = match child {
                None => elements.next_element::<IgnoredAny>()?.is_some(),
                Some(child) => match elements.next_element::<&RawValue>()? {
                    None => false,
                    Some(raw) => {
                        self.take(child, raw).map_err(S::Error::custom)?;
                        true
                    }
                },
            };
            if !more {
                break;
            }
        }
        Ok(())
    }
}

/// A member's name: which of these children it leads to.
struct Name<'t>(&'t [Child]);

impl<'a> DeserializeSeed<'a> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|child| child.name == name))
    }
}
