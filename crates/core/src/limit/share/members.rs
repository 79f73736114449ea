//! What is recorded of those who share a limit.

use std::collections::BTreeMap;

use super::{TurnNumber, TurnOrder, fair::Wanting};

/// What is recorded of one of them: of its last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<M> {
    pub last: TurnNumber,
    /// From when on it is none, in milliseconds since 1970.
    pub ends: i64,
    pub held: u64,
    pub wanted: u64,
    /// What else its limit needs to know.
    pub more: M,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecords<M>(BTreeMap<Box<str>, Member<M>>);

impl<M> Default for MemberRecords<M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<M> MemberRecords<M> {
    /// Removes the members that have ended, and returns them.
    pub fn drop_ended(&mut self, now: i64) -> Vec<(Box<str>, Member<M>)> {
        self.0.extract_if(.., |_, member| member.ends <= now).collect()
    }

    /// One that has not ended.
    pub fn get(&self, name: &str, now: i64) -> Option<&Member<M>> {
        self.0.get(name).filter(|member| member.ends > now)
    }

    pub fn order(&self, name: &str, turn: TurnNumber, now: i64) -> TurnOrder {
        self.get(name, now).map_or(TurnOrder::New, |member| turn.after(member.last))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Member<M>)> {
        self.0.iter().map(|(name, member)| (&**name, member))
    }

    pub fn others<'m>(&'m self, own: &'m str) -> impl Iterator<Item = (&'m str, &'m Member<M>)> {
        self.all().filter(move |(name, _)| *name != own)
    }

    /// What all but this one want.
    pub fn wants<'m>(&'m self, own: &'m str) -> impl Iterator<Item = Wanting<'m>> {
        self.others(own).map(|(name, member)| Wanting { want: member.wanted, name })
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn renew(&mut self, name: &str, member: Member<M>) {
        self.0.insert(name.into(), member);
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}
