//! The places that are read in a value, as a tree of steps.

use super::IntentField;
use crate::basis::words;

/// Something that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldSlot {
    Field(IntentField),
    Event(EventMember),
}

words! {
    /// The members of a structured CloudEvent that are read; with their names, fixed by the JSON event format of CloudEvents 1.0.
    pub(crate) enum EventMember {
        Id = "id",
        Subject = "subject",
        Time = "time",
        Data = "data",
        DataBase64 = "data_base64",
        Source = "source",
    }
}

impl FieldSlot {
    pub(crate) const COUNT: usize = IntentField::ALL.len() + EventMember::ALL.len();

    /// Its number, below [`FieldSlot::COUNT`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Field(field) => field as usize,
            Self::Event(member) => IntentField::ALL.len() + member as usize,
        }
    }
}

const _: () = assert!(FieldSlot::COUNT <= u16::BITS as usize, "a node's children fit into a set of 16 bits");

#[derive(Debug, Clone, Default)]
pub(crate) struct TrieNode {
    pub(crate) pointer: String,
    /// What is read here.
    pub(crate) slots: Vec<FieldSlot>,
    /// The steps that lead on. At most one a slot, so a 16-bit set of them has room.
    pub(crate) children: Vec<Child>,
    /// Which children have a name of this [`kind_of_name`], as a set of places: most names lead nowhere, or are one's own.
    by_kind: [u16; NAME_KINDS],
}

const NAME_KINDS: usize = 32;

/// A few bits of a name that tell most names apart.
fn kind_of_name(name: &[u8]) -> usize {
    let byte = |byte: Option<&u8>| byte.map_or(0, |&byte| usize::from(byte));
    (name.len() + byte(name.first()) + byte(name.last())) % NAME_KINDS
}

impl TrieNode {
    /// The place of the child that a member of this name leads to.
    #[inline]
    pub(crate) fn child(&self, name: &[u8]) -> Option<usize> {
        let mut like = self.by_kind[kind_of_name(name)];
        while like != 0 {
            let place = like.trailing_zeros() as usize;
            if self.children[place].name.as_bytes() == name {
                return Some(place);
            }
            like &= like - 1;
        }
        None
    }

    fn add(&mut self, child: Child) {
        self.by_kind[kind_of_name(child.name.as_bytes())] |= 1 << self.children.len();
        self.children.push(child);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// How a member of this name begins, as nearly all write it.
    pub(crate) member: QuotedName,
    /// The name as an element's number, where it is one (RFC 6901: no leading zeros).
    pub(crate) element: Option<usize>,
    /// Where it leads: an index into the tree's nodes.
    pub(crate) node: usize,
    /// What is read there, if that is one thing and nothing lies further in.
    pub(crate) leaf: Option<FieldSlot>,
}

/// A name in quotes and a colon.
#[derive(Debug, Clone)]
pub(crate) struct QuotedName {
    text: Box<[u8]>,
    /// Its first 16 bytes, 0 behind its end.
    head: u128,
    /// The bits of `head` that are its.
    mask: u128,
}

impl QuotedName {
    fn new(name: &str) -> Self {
        let text = format!("{}:", serde_json::Value::from(name)).into_bytes().into_boxed_slice();
        let (mut head, mut mask) = ([0; 16], [0; 16]);
        for ((byte, head), mask) in text.iter().zip(&mut head).zip(&mut mask) {
            (*head, *mask) = (*byte, u8::MAX);
        }
        Self { text, head: u128::from_le_bytes(head), mask: u128::from_le_bytes(mask) }
    }

    /// How many bytes it has.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    #[inline(always)]
    pub(crate) fn begins(&self, text: &[u8]) -> bool {
        match text.first_chunk() {
            Some(head) if (u128::from_le_bytes(*head) ^ self.head) & self.mask != 0 => false,
            Some(_) if self.text.len() <= 16 => true,
            Some(_) | None => text.starts_with(&self.text),
        }
    }
}

/// The tree. Node 0 is the whole value.
#[derive(Debug, Clone)]
pub(crate) struct Trie {
    nodes: Vec<TrieNode>,
}

impl Trie {
    pub(crate) fn new<'p>(places: impl IntoIterator<Item = (FieldSlot, &'p [String])>) -> Self {
        let mut trie = Self { nodes: vec![TrieNode::default()] };
        for (slot, steps) in places {
            trie.add(slot, steps.iter().map(String::as_str));
        }
        trie.with_leaves()
    }

    /// The tree of a structured CloudEvent: these places under `data`, and the event's own members.
    pub(crate) fn of_event<'p>(places: impl IntoIterator<Item = (FieldSlot, &'p [String])>) -> Self {
        let mut trie = Self::new([]);
        for member in EventMember::ALL {
            trie.add(FieldSlot::Event(member), [member.as_str()]);
        }
        for (slot, steps) in places {
            let inside = steps.iter().map(String::as_str);
            trie.add(slot, std::iter::once(EventMember::Data.as_str()).chain(inside));
        }
        trie.with_leaves()
    }

    /// The same tree, whose children know whether they lead to a leaf.
    fn with_leaves(mut self) -> Self {
        let leaf = |node: &TrieNode| match (node.slots.as_slice(), node.children.as_slice()) {
            (&[slot], []) => Some(slot),
            ([] | [_, ..], _) => None,
        };
        let leaves: Vec<Option<FieldSlot>> = self.nodes.iter().map(leaf).collect();
        for child in self.nodes.iter_mut().flat_map(|node| &mut node.children) {
            child.leaf = leaves[child.node];
        }
        self
    }

    pub(crate) fn node(&self, node: usize) -> &TrieNode {
        &self.nodes[node]
    }

    pub(crate) fn pointer(&self, slot: FieldSlot) -> &str {
        self.nodes.iter().find(|node| node.slots.contains(&slot)).map_or("", |node| node.pointer.as_str())
    }

    fn add<'p>(&mut self, slot: FieldSlot, steps: impl IntoIterator<Item = &'p str>) {
        let end = steps.into_iter().fold(0, |at, step| self.step(at, step));
        self.nodes[end].slots.push(slot);
    }

    /// The node that a step leads to from another, made if it is new.
    fn step(&mut self, from: usize, name: &str) -> usize {
        if let Some(child) = self.nodes[from].children.iter().find(|child| child.name == name) {
            return child.node;
        }
        let node = self.nodes.len();
        let pointer = format!("{}/{}", self.nodes[from].pointer, name.replace('~', "~0").replace('/', "~1"));
        let element = name.parse().ok().filter(|number: &usize| number.to_string() == name);
        let member = QuotedName::new(name);
        self.nodes[from].add(Child { name: name.to_owned(), member, element, node, leaf: None });
        self.nodes.push(TrieNode { pointer, ..TrieNode::default() });
        node
    }
}
