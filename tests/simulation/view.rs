//! What readers see of the fake broker: its outputs, and whether all is done.

use std::{collections::BTreeSet, time::Duration};

use super::{
    broker::{Broker, Out, State},
    rings::Log,
};

impl Broker {
    /// The outputs that a read_committed reader sees, in order.
    pub fn visible(&self) -> impl Iterator<Item = &Out> {
        self.outputs.iter().filter(|out| self.visible_at(out).is_some())
    }

    /// When an output became visible at read_committed.
    pub fn visible_at(&self, out: &Out) -> Option<Duration> {
        match self.transactions[out.transaction].state {
            State::Committed(at) => Some(at),
            State::Open(_) | State::Prepared(_) | State::Aborted => None,
        }
    }

    /// The records that a read_committed reader gets from an offset, up to the first open transaction; and the offset
    /// after them.
    pub fn stable(&mut self, from: usize) -> (Vec<&Out>, usize) {
        self.pass_time();
        // No transaction before is open: from there on a reader had read before.
        let open = self.outputs[from..].iter().position(|out| self.is_open(out.transaction));
        let end = open.map_or(self.outputs.len(), |open| from + open);
        (self.outputs[from..end].iter().filter(|out| self.visible_at(out).is_some()).collect(), end)
    }

    pub fn is_committed(&self, transaction: usize) -> bool {
        matches!(self.transactions[transaction].state, State::Committed(_))
    }

    pub fn is_open(&self, transaction: usize) -> bool {
        matches!(self.transactions[transaction].state, State::Open(_) | State::Prepared(_))
    }

    /// Visible approved records that an aborted transaction had written before.
    pub fn replays(&self) -> usize {
        let approved = || self.outputs.iter().filter(|out| out.is_approval());
        let aborted = approved().filter(|out| self.transactions[out.transaction].state == State::Aborted);
        let aborted: BTreeSet<(i32, i64)> = aborted.map(|out| out.intent.first).collect();
        self.visible().filter(|out| out.is_approval() && aborted.contains(&out.intent.first)).count()
    }

    /// Whether all intents are done and no transaction is open.
    pub fn is_drained(&mut self) -> bool {
        self.pass_time();
        let open = self.producers.values().any(|producer| producer.open.is_some());
        !open && [Log::Waiting, Log::Input, Log::Retries].into_iter().all(|log| self.left(log).is_empty())
    }
}
