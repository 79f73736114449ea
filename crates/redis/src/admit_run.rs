//! One batch on its way through Redis: its unanswered sends, and why they have no answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::Value;
use weir_core::{
    basis::shard::Place,
    history::{
        admit::AdmitBatch,
        decide::Answer,
        reply::{self, SendOutcome, read_reply},
    },
    intent::class::{ClassNames, ClassNumbers},
    ports::StoreError,
};

use super::{
    address::NodeAddr,
    backoff::Tries,
    cluster::{Cluster, Routed},
    keyspace::Keyspace,
    names::Names,
    node::{Reply, Request},
    open::{ShardEpochs, look_at_epochs},
    options::RedisOptions,
    packing::{CapSets, Terms, pack_call, script_time},
    plan::{self, CallSize, Planned},
    request_error::{RetryTiming, lost_history},
    script::Script,
    stats::RetryCause,
};

/// How often new kinds are read in one batch.
const MAX_RELOADS: usize = 4;

pub(super) struct AdmitRun<'a> {
    batch: &'a AdmitBatch<'a>,
    answers: &'a mut [Option<Answer>],
    keyspace: &'a Keyspace,
    size: &'a mut CallSize,
    /// Calls that were answered, and how many of them did not get to all of their users.
    read: (usize, usize),
    /// By place in the batch; `None` where not asked for or unknown.
    numbers: Vec<Option<ClassNumbers>>,
    /// Sends without an answer that may still get one.
    pending: Vec<Planned>,
    /// Shards in a slot that is moving: asked key by key.
    moving: BTreeSet<u16>,
    /// Where keys of moving slots have gone.
    detours: BTreeMap<(u16, u32), NodeAddr>,
    tries: Tries<u16>,
    /// Shards without their history, and what was found.
    lost: BTreeMap<u16, String>,
    /// Shards with calls that were not answered, and may have been carried out: under this epoch, or one before.
    pub(super) unclear: BTreeSet<u16>,
    answered: BTreeSet<u16>,
    reloads: usize,
    stale: bool,
    /// When it began, or answers came last, as [`super::network::Network::passed`] counts.
    answered_at: Duration,
    /// It was answered for too long.
    slow: bool,
    last: Option<String>,
}

struct AdmitCall {
    sends: Vec<Planned>,
    kind: CallKind,
}

/// Whether a call carries the shard's epoch key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    /// Many keys, the epoch among them.
    Whole,
    /// One key of a moving slot; the epoch was read before.
    OneKey,
}

impl<'a> AdmitRun<'a> {
    pub(super) fn new(
        batch: &'a AdmitBatch<'a>,
        answers: &'a mut [Option<Answer>],
        keyspace: &'a Keyspace,
        size: &'a mut CallSize,
        cluster: &Cluster,
    ) -> Self {
        let layout = keyspace.meta().layout;
        let open =
            batch.requests.iter().enumerate().filter(|(request, _)| answers.get(*request).is_some_and(Option::is_none));
        let pending = open.map(|(request, asked)| Planned { place: layout.place(asked.user), request }).collect();
        Self {
            numbers: vec![None; batch.requests.len()],
            batch,
            answers,
            keyspace,
            size,
            read: (0, 0),
            pending,
            moving: BTreeSet::new(),
            detours: BTreeMap::new(),
            tries: cluster.tries(),
            lost: BTreeMap::new(),
            unclear: BTreeSet::new(),
            answered: BTreeSet::new(),
            reloads: 0,
            stale: false,
            answered_at: cluster.options().network.passed(),
            slow: false,
            last: None,
        }
    }

    /// Turns names into numbers. A user with a send whose numbers cannot be had is not asked for at all, so
    /// that order is kept.
    pub(super) async fn name(&mut self, cluster: &mut Cluster, names: &mut Names) {
        let classes: Vec<ClassNames<'_>> =
            self.pending.iter().map(|send| self.batch.requests[send.request].class).collect();
        let (numbers, error) = names.resolve(&classes, cluster, self.keyspace).await;
        let mut nameless = BTreeSet::new();
        for (send, number) in self.pending.iter().zip(numbers) {
            self.numbers[send.request] = number;
            if number.is_none() {
                nameless.insert(send.place);
            }
        }
        let Some(error) = error else { return };
        self.pending.retain(|send| !nameless.contains(&send.place));
        if error.cause == RetryCause::LostHistory {
            let message = format!("{}: {error}", self.keyspace.kinds_key());
            self.lost.extend(nameless.iter().map(|place| (place.shard, message.clone())));
        }
        self.last = Some(error.to_string());
    }

    /// Rounds, until all sends are answered or the others cannot be answered now.
    pub(super) async fn run(&mut self, cluster: &mut Cluster, names: &mut Names) {
        let (mut learnt, began) = (false, cluster.options().network.passed());
        let mut sets = CapSets::new(&self.batch.cap_sets, names.kinds());
        while !self.pending.is_empty() {
            if self.is_too_old(cluster) {
                break;
            }
            self.check_moving(cluster).await;
            let calls = self.calls();
            let requests = calls.iter().map(|call| self.routed(call, &sets, cluster)).collect();
            for (call, reply) in calls.iter().zip(cluster.round(requests).await) {
                self.take(call, reply, cluster);
            }
            let open = self.pending.len();
            self.pending.retain(|send| self.answers[send.request].is_none());
            if self.pending.len() < open {
                self.answered_at = cluster.options().network.passed();
                // Rounds without an answer end by themselves.
                self.slow = self.answered_at.saturating_sub(began) > cluster.options().admit_time;
            }
            // Later rounds have few calls, of users whose own sends are too many for one.
            if !learnt && self.read.0 > 0 {
                learnt = true;
                self.size.learn(self.read.0, self.read.1);
            }
            if self.stale {
                self.stale = false;
                if !self.read_kinds(cluster, names).await {
                    break;
                }
                // Where it is no news, the number was lost with the node that held the names: it matches every filter.
                sets = match self.reloads {
                    1 => CapSets::new(&self.batch.cap_sets, names.kinds()),
                    _ => CapSets::new(&self.batch.cap_sets, &names.kinds().clone().with_all_numbers()),
                };
            }
            if self.pending.is_empty() || self.slow {
                break;
            }
            if !self.tries.again(self.pending.iter().map(|send| &send.place.shard)).await {
                break;
            }
        }
    }

    /// Whether the batch's clock is too old for another round: nothing was answered for as long as one reply may take. The
    /// caller then asks again, by the clock of then.
    fn is_too_old(&self, cluster: &Cluster) -> bool {
        let RedisOptions { network, response_timeout, .. } = cluster.options();
        network.passed().saturating_sub(self.answered_at) >= *response_timeout
    }

    /// In a slot that is moving, epoch and histories may be on different nodes for a while: the epoch is read
    /// by itself there, right before each round.
    async fn check_moving(&mut self, cluster: &mut Cluster) {
        let active = |shard: &&u16| !self.tries.rests(shard);
        let shards: Vec<u16> = self.moving.iter().filter(active).copied().collect();
        let ShardEpochs { lost, silent, .. } = look_at_epochs(cluster, self.keyspace, shards).await;
        lost.into_iter().for_each(|shard| self.lose(shard, "the epoch is gone or another".to_owned()));
        for (shard, error) in silent {
            self.last = Some(error.to_string());
            self.tries.failed(shard, RetryTiming::AfterWait);
        }
    }

    fn lose(&mut self, shard: u16, found: String) {
        self.pending.retain(|send| send.place.shard != shard);
        self.lost.insert(shard, found);
    }

    fn give_up(&mut self, out: impl Fn(&Place) -> bool, why: String) {
        self.pending.retain(|send| !out(&send.place));
        self.last = Some(why);
    }

    fn calls(&self) -> Vec<AdmitCall> {
        let active = |send: &&Planned| !self.tries.rests(&send.place.shard);
        let sends = if self.tries.none_rests() {
            plan::calls(&self.pending, self.size)
        } else {
            plan::calls(&self.pending.iter().filter(active).copied().collect::<Vec<_>>(), self.size)
        };
        let mut calls = Vec::with_capacity(sends.len());
        for sends in sends {
            if self.moving.contains(&sends[0].place.shard) {
                let by_bucket = sends.chunk_by(|a, b| a.place.bucket == b.place.bucket);
                calls.extend(by_bucket.map(|sends| AdmitCall { sends: sends.to_vec(), kind: CallKind::OneKey }));
            } else {
                calls.push(AdmitCall { sends, kind: CallKind::Whole });
            }
        }
        calls
    }

    fn routed(&self, call: &AdmitCall, sets: &CapSets, cluster: &Cluster) -> Routed {
        let Place { shard, bucket, .. } = call.sends[0].place;
        let buckets = call.sends.chunk_by(|a, b| a.place.bucket == b.place.bucket);
        let mut keys: Vec<String> =
            buckets.map(|sends| self.keyspace.bucket_key(shard, sends[0].place.bucket)).collect();
        let epoch = match call.kind {
            CallKind::Whole => {
                keys.insert(0, self.keyspace.epoch_key(shard));
                self.keyspace.epoch()
            }
            CallKind::OneKey => "",
        };
        let terms = Terms {
            now: self.batch.now,
            bounds: cluster.options().bounds(self.keyspace.meta()),
            touch: cluster.options().wait_replicas > 0,
        };
        let mut args = vec![epoch.as_bytes().to_vec()];
        args.extend(pack_call(&terms, sets, &call.sends, &self.batch.requests, &self.numbers));
        cluster.stats().call(call.sends.len());
        // Sent within one reply's time, and given up after another.
        let latest = Some(self.answered_at + 2 * cluster.options().response_timeout);
        let detour = self.detours.get(&(shard, bucket)).filter(|_| call.kind == CallKind::OneKey).cloned();
        Routed {
            slot: self.keyspace.slot(shard),
            detour,
            request: Request::Call { script: Script::Admit, keys, args, latest },
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others say that the slot is not where it was, or does not answer"
    )]
    fn take(&mut self, call: &AdmitCall, reply: Reply, cluster: &Cluster) {
        let shard = call.sends[0].place.shard;
        let error = match reply {
            Ok(value) => match self.read(call, &value, cluster) {
                Some(()) => return,
                None => cluster.torn("another length or code"),
            },
            Err(error) => error,
        };
        self.last = Some(error.to_string());
        if error.may_have_run() {
            self.unclear.insert(shard);
        }
        let bucket = call.sends[0].place.bucket;
        match error.cause {
            RetryCause::LostHistory => self.lose(shard, error.to_string()),
            RetryCause::Refused => self.give_up(|place| place.shard == shard, error.to_string()),
            RetryCause::Ask | RetryCause::TryAgain if call.kind == CallKind::Whole => {
                self.moving.insert(shard);
                self.tries.failed(shard, RetryTiming::AtOnce);
                return;
            }
            RetryCause::Ask => self.detours.extend(error.to.clone().map(|(_, to)| ((shard, bucket), to))),
            RetryCause::NoScript => {}
            _ => {
                self.moving.remove(&shard);
                self.detours.retain(|(of, _), _| *of != shard);
            }
        }
        self.tries.failed(shard, error.retry_timing());
    }

    fn read(&mut self, call: &AdmitCall, value: &Value, cluster: &Cluster) -> Option<()> {
        let Value::BulkString(bytes) = value else { return None };
        let reply::Reply { outcomes, dropped } = read_reply(bytes, call.sends.len(), script_time(self.batch.now))?;
        cluster.stats().entries_dropped(dropped);
        self.answered.insert(call.sends[0].place.shard);
        let (mut before, mut missed_users) = (call.sends[0].place, false);
        for (send, outcome) in call.sends.iter().zip(outcomes) {
            let next_user = std::mem::replace(&mut before, send.place) != send.place;
            match outcome {
                SendOutcome::Answered(answer) => {
                    self.answers[send.request] = Some(answer);
                }
                SendOutcome::PutOff => {
                    cluster.stats().error(RetryCause::PutOff);
                    missed_users |= next_user;
                }
                SendOutcome::StaleKinds => {
                    cluster.stats().error(RetryCause::StaleKinds);
                    self.stale = true;
                }
                SendOutcome::TornHistory => {
                    let Place { shard, bucket, .. } = send.place;
                    let key = self.keyspace.bucket_key(shard, bucket);
                    let why = format!("{key} holds a history that is not whole entries: something else wrote it");
                    self.give_up(|place| *place == send.place, why);
                }
            }
        }
        self.read = (self.read.0 + 1, self.read.1 + usize::from(missed_users));
        Some(())
    }

    /// Reads the kinds that are new. `false`: they were read often enough, or cannot be read.
    async fn read_kinds(&mut self, cluster: &mut Cluster, names: &mut Names) -> bool {
        self.reloads += 1;
        if self.reloads > MAX_RELOADS {
            self.last = Some(format!("histories name kinds that {} does not", self.keyspace.kinds_key()));
            return false;
        }
        match names.read_kinds(cluster, self.keyspace).await {
            Ok(()) => true,
            Err(error) => {
                self.last = Some(error.to_string());
                false
            }
        }
    }

    pub(super) fn was_answered(&self, shard: u16) -> bool {
        self.answered.contains(&shard)
    }

    pub(super) fn lost(&self) -> impl Iterator<Item = u16> {
        self.lost.keys().copied()
    }

    pub(super) fn result(self) -> Result<(), StoreError> {
        let open = |request: &usize| self.answers[*request].is_none();
        let layout = self.keyspace.meta().layout;
        let shard = |request: usize| layout.place(self.batch.requests[request].user).shard;
        let missing: Vec<usize> = (0..self.answers.len().min(self.batch.requests.len())).filter(open).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // What was recorded before the epoch was another is there again where a rebuild has not lost the history.
        let records_nothing = |shard: u16| self.lost.contains_key(&shard) && !self.unclear.contains(&shard);
        if let Some((_, found)) = self.lost.first_key_value()
            && missing.iter().all(|request| records_nothing(shard(*request)))
        {
            return Err(lost_history(self.lost.keys().copied().collect(), found));
        }
        if self.slow {
            let done = self.answers.len() - missing.len();
            return Err(StoreError::TooSlow(format!(
                "Redis has answered {done} intents so far, of very long histories"
            )));
        }
        let may_be_recorded = missing.iter().any(|request| self.unclear.contains(&shard(*request)));
        let why = self.last.unwrap_or_else(|| "no reply".to_owned());
        let message = format!("{} of {} sends have no answer: {why}", missing.len(), self.answers.len());
        Err(if may_be_recorded { StoreError::Temporary(message) } else { StoreError::NotRecorded(message) })
    }
}
