//! One walk through a value, picking up what stands at the places that are read.

use super::{
    super::fields::trie::{Child, Node, Slot, Trie},
    json::JsonKind,
    scan::{Escapes, Piece, Refused, Scan},
};

/// What stood at the places that are read: pieces of the value.
#[derive(Debug)]
pub(super) struct Found<'t, 'a> {
    text: &'a str,
    pieces: [Option<Piece>; Slot::COUNT],
    twice: Option<&'t str>,
}

impl<'t, 'a> Found<'t, 'a> {
    /// Nothing, so far.
    pub(super) const fn nothing(text: &'a str) -> Self {
        Self { text, pieces: [None; Slot::COUNT], twice: None }
    }

    /// What stands at a place; `None` where it is absent or null.
    #[inline]
    pub(super) fn piece(&self, slot: Slot) -> Option<Piece> {
        self.pieces[slot.index()].filter(|piece| piece.kind != JsonKind::Null)
    }

    /// What was walked through, and pieces stand in.
    pub(super) const fn text(&self) -> &'a str {
        self.text
    }

    /// The first place that is given twice, as a pointer.
    pub(super) const fn twice(&self) -> Option<&'t str> {
        self.twice
    }
}

/// Walks through an object, and puts what it finds into `found`, which is of the same text.
///
/// # Errors
/// The text is no object, or not JSON.
pub(super) fn walk<'t>(trie: &'t Trie, found: &mut Found<'t, '_>) -> Result<(), Refused> {
    let mut walk = Walk { trie, scan: Scan::new(found.text), found };
    if walk.scan.next() != Some(b'{') {
        return Err(Refused);
    }
    walk.object(0, 1)?;
    walk.scan.end()
}

struct Walk<'t, 'f, 'a> {
    trie: &'t Trie,
    scan: Scan<'a>,
    found: &'f mut Found<'t, 'a>,
}

impl<'t> Walk<'t, '_, '_> {
    /// An object that places lie in. `level` is its own.
    fn object(&mut self, node: usize, level: usize) -> Result<(), Refused> {
        let node = self.trie.node(node);
        let mut seen = 0_u64;
        let mut next = 0;
        let mut more = self.scan.enter(level, b'}')?;
        while more {
            match self.name(node, next)? {
                None => drop(self.scan.value(level)?),
                Some(place) => {
                    let child = &node.children[place];
                    if seen & (1 << place) != 0 {
                        self.found.twice.get_or_insert(self.trie.node(child.node).pointer.as_str());
                    }
                    seen |= 1 << place;
                    next = place + 1;
                    self.take(child, level)?;
                }
            }
            more = self.scan.more(b'}')?;
        }
        Ok(())
    }

    /// A member's name: which child of the node it leads to, the one at `next` as a rule. Names are compared as text.
    #[inline(always)]
    fn name(&mut self, node: &Node, next: usize) -> Result<Option<usize>, Refused> {
        self.scan.next();
        for (place, child) in node.behind(next) {
            if self.scan.skip_name(child.member.as_bytes()) {
                return Ok(Some(place));
            }
        }
        let name = self.scan.name()?;
        Ok(match name.escapes {
            Escapes::None => node.child(self.scan.bytes_of(&name)),
            Escapes::Some => name.unescaped(self.found.text).and_then(|name| node.child(name.as_bytes())),
        })
    }

    /// An array that places lie in.
    fn array(&mut self, node: usize, level: usize) -> Result<(), Refused> {
        let node = self.trie.node(node);
        let mut number = 0;
        let mut more = self.scan.enter(level, b']')?;
        while more {
            match node.children.iter().find(|child| child.element == Some(number)) {
                None => drop(self.scan.value(level)?),
                Some(child) => self.take(child, level)?,
            }
            number += 1;
            more = self.scan.more(b']')?;
        }
        Ok(())
    }

    /// Takes what a child leads to, and walks on into it where places lie further in. `level` is what it lies in.
    fn take(&mut self, child: &'t Child, level: usize) -> Result<(), Refused> {
        let node = self.trie.node(child.node);
        let next = if node.children.is_empty() { None } else { self.scan.next() };
        let start = self.scan.at();
        let piece = match next {
            Some(b'{') => {
                self.object(child.node, level + 1)?;
                self.scan.since(start, JsonKind::Object)
            }
            Some(b'[') => {
                self.array(child.node, level + 1)?;
                self.scan.since(start, JsonKind::Array)
            }
            Some(_) | None => self.scan.value(level)?,
        };
        for slot in &node.slots {
            self.found.pieces[slot.index()] = Some(piece);
        }
        Ok(())
    }
}
