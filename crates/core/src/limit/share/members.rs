//! What is recorded of those who share a limit.

use std::collections::BTreeMap;

use super::{TurnNumber, TurnOrder, fair::Wanting};

/// What is recorded of one of them: of its last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member<M> {
    pub(crate) last: TurnNumber,
    /// From when on it is none, in milliseconds since 1970.
    pub(crate) ends: i64,
    pub(crate) held: u64,
    pub(crate) wanted: u64,
    /// What else its limit needs to know.
    pub(crate) more: M,
}

/// All of them, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRecords<M>(BTreeMap<Box<str>, Member<M>>);

impl<M> Default for MemberRecords<M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<M> MemberRecords<M> {
    /// Forgets those that have ended.
    pub(crate) fn drop_ended(&mut self, now: i64) {
        self.0.retain(|_, member| member.ends > now);
    }

    /// One that has not ended.
    pub(crate) fn get(&self, name: &str, now: i64) -> Option<&Member<M>> {
        self.0.get(name).filter(|member| member.ends > now)
    }

    /// How a turn comes after the last one of its member.
    pub(crate) fn order(&self, name: &str, turn: TurnNumber, now: i64) -> TurnOrder {
        self.get(name, now).map_or(TurnOrder::New, |member| turn.after(member.last))
    }

    /// Whether there is one of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All of them, in the order of their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Member<M>)> {
        self.0.iter().map(|(name, member)| (&**name, member))
    }

    /// All but this one.
    pub(crate) fn others<'m>(&'m self, own: &'m str) -> impl Iterator<Item = (&'m str, &'m Member<M>)> {
        self.all().filter(move |(name, _)| *name != own)
    }

    /// What all but this one want.
    pub(crate) fn wants<'m>(&'m self, own: &'m str) -> impl Iterator<Item = Wanting<'m>> {
        self.others(own).map(|(name, member)| Wanting { want: member.wanted, name })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// A member takes a turn.
    pub(crate) fn renew(&mut self, name: &str, member: Member<M>) {
        self.0.insert(name.into(), member);
    }

    /// A member leaves.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}
