//! One walk through a value, picking up what stands at the places that are read.

use super::super::{
    dead_letter::DeadLetter,
    fields::trie::{Child, FieldSlot, Trie, TrieNode},
};
use super::{
    json,
    scan::{Piece, PieceForm, Refused, Scan},
};

/// What stood at the places that are read: pieces of the value.
#[derive(Debug)]
pub(super) struct Found<'t, 'a> {
    /// What was walked through, and pieces stand in.
    pub(super) text: &'a str,
    pieces: [Piece; FieldSlot::COUNT],
    /// The first place that is given twice, as a pointer.
    pub(super) twice: Option<&'t str>,
}

impl<'t, 'a> Found<'t, 'a> {
    pub(super) const fn nothing(text: &'a str) -> Self {
        Self { text, pieces: [Piece::NOTHING; FieldSlot::COUNT], twice: None }
    }

    /// What stands at a place; `None` where it is absent or null.
    #[inline]
    pub(super) fn piece(&self, slot: FieldSlot) -> Option<Piece> {
        let piece = self.pieces[slot.index()];
        (!matches!(piece.form, PieceForm::Nothing | PieceForm::Null)).then_some(piece)
    }

    /// What stands at a place, whatever it is.
    #[inline(always)]
    pub(super) fn any(&self, slot: FieldSlot) -> Piece {
        self.pieces[slot.index()]
    }
}

/// Walks through an object, and puts what it finds into `found`, which is of the same text. Fails where the text is no object, or not JSON.
pub(super) fn walk<'t>(trie: &'t Trie, found: &mut Found<'t, '_>) -> Result<(), DeadLetter> {
    let mut walk = Walk { trie, scan: Scan::new(found.text), found };
    walk.whole().map_err(|Refused| json::refusal(walk.found.text, walk.scan.problem))
}

struct Walk<'t, 'f, 'a> {
    trie: &'t Trie,
    scan: Scan<'a>,
    found: &'f mut Found<'t, 'a>,
}

impl<'t> Walk<'t, '_, '_> {
    fn whole(&mut self) -> Result<(), Refused> {
        if self.scan.next() == Some(b'{') {
            self.object(0, 1)?;
            return self.scan.end();
        }
        self.scan.value(0)?;
        Err(Refused)
    }

    /// An object that places lie in. `level` is its own.
    fn object(&mut self, node: usize, level: usize) -> Result<(), Refused> {
        let node = self.trie.node(node);
        let mut seen = 0_u16;
        let mut next = 0;
        let mut more = self.scan.enter(level, b'}')?;
        while more {
            // Members come in the order of fields, as a rule, and one or the other is left out.
            let place = if self.is_at(node, next) {
                Some(next)
            } else if self.is_at(node, next + 1) {
                Some(next + 1)
            } else {
                self.name(node)?
            };
            match place.and_then(|place| Some((place, node.children.get(place)?))) {
                None => drop(self.scan.value(level)?),
                Some((place, child)) => {
                    next = place + 1;
                    match child.leaf {
                        Some(slot) => {
                            let piece = self.scan.value(level)?;
                            let before = std::mem::replace(&mut self.found.pieces[slot.index()], piece);
                            if before.form != PieceForm::Nothing {
                                self.is_twice(child);
                            }
                        }
                        None => {
                            if seen >> place & 1 == 1 {
                                self.is_twice(child);
                            }
                            seen |= 1 << place;
                            self.take(child, level)?;
                        }
                    }
                }
            }
            more = self.scan.more(b'}')?;
        }
        Ok(())
    }

    /// Takes down that a child was given twice, if it is the first one.
    #[cold]
    fn is_twice(&mut self, child: &Child) {
        self.found.twice.get_or_insert(self.trie.node(child.node).pointer.as_str());
    }

    /// Whether the member here leads to the child at this place, and is written as nearly all write it. Then its name is
    /// passed over.
    #[inline(always)]
    fn is_at(&mut self, node: &TrieNode, place: usize) -> bool {
        node.children.get(place).is_some_and(|child| self.scan.skip_name(&child.member))
    }

    /// Any member's name: which child of the node it leads to. Names are compared as text.
    #[inline(never)]
    fn name(&mut self, node: &TrieNode) -> Result<Option<usize>, Refused> {
        let name = self.scan.name()?;
        if name.form != PieceForm::Escaped {
            return Ok(node.child(self.scan.bytes_of(&name)));
        }
        Ok(name.unescaped(self.found.text).and_then(|name| node.child(name.as_bytes())))
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

    /// Takes what a child leads to that is no leaf, and walks on into it where places lie further in. `level` is what it lies in.
    fn take(&mut self, child: &'t Child, level: usize) -> Result<(), Refused> {
        let node = self.trie.node(child.node);
        let next = if node.children.is_empty() { None } else { self.scan.next() };
        let start = self.scan.at();
        let piece = match next {
            Some(b'{') => {
                self.object(child.node, level + 1)?;
                self.scan.since(start, PieceForm::Object)
            }
            Some(b'[') => {
                self.array(child.node, level + 1)?;
                self.scan.since(start, PieceForm::Array)
            }
            Some(_) | None => self.scan.value(level)?,
        };
        for slot in &node.slots {
            self.found.pieces[slot.index()] = piece;
        }
        Ok(())
    }
}
