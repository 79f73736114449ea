//! Limits in this process: for `weir demo` and tests.

use std::{collections::BTreeMap, sync::Arc};

use super::{Share, TurnNumber, overtaken};
use crate::{
    basis::{
        locked::{Locked, Now},
        store_error::StoreError,
        time::Time,
    },
    limit::SharedLimit,
};

/// A limit in memory: the reference of its script.
pub trait Reference<L: SharedLimit>: Send {
    /// Nobody has taken a turn yet.
    fn new(key: &L::Key) -> Self;

    /// Takes a turn of a member at a moment; `None` where a later one was taken before.
    fn turn(&mut self, member: &str, number: TurnNumber, turn: &L::Turn, now: Time) -> Option<L::Reply>;
}

/// References of a limit with a clock, as one member takes its turns at them; clones share them.
pub struct Embedded<L: SharedLimit> {
    limits: Locked<BTreeMap<L::Key, L::Reference>>,
    member: Arc<str>,
    now: Now,
}

impl<L: SharedLimit> Clone for Embedded<L> {
    fn clone(&self) -> Self {
        Self { limits: self.limits.clone(), member: Arc::clone(&self.member), now: Arc::clone(&self.now) }
    }
}

impl<L: SharedLimit> Embedded<L> {
    /// Nobody has taken a turn yet; this member takes turns, at the times of this clock.
    pub fn new(member: &str, now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { limits: Locked::default(), member: member.into(), now: Arc::new(now) }
    }

    /// Does something with the reference of one of them, at this moment.
    pub fn with<T>(&self, key: &L::Key, what: impl FnOnce(&mut L::Reference, Time) -> T) -> T {
        let mut limits = self.limits.lock();
        what(limits.entry(key.clone()).or_insert_with(|| L::Reference::new(key)), (self.now)())
    }
}

impl<L: SharedLimit> Share<L> for Embedded<L> {
    async fn turn(&mut self, key: &L::Key, number: TurnNumber, turn: &L::Turn) -> Result<L::Reply, StoreError> {
        self.with(key, |limit, now| limit.turn(&self.member, number, turn, now)).ok_or_else(overtaken)
    }
}
