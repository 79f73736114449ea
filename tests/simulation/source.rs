//! One member of the fake group, as a lane's source.

use weir_core::{
    batch::record::{ReadBefore, RecordView, Records},
    ports::{EARLIER_READERS_END, GroupEvent, Source, SourceError},
};

use super::{group::Look, prelude::*};

/// Brokers that lead the partitions of a ring: each answers by itself.
const LEADERS: usize = 3;

#[derive(Default)]
pub struct Batch(pub Vec<Fetched>);

impl Records for Batch {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let Fetched { intent, told, .. } = &self.0[index];
        let Intent { partition, offset, key, value, at, deferral, .. } = &**intent;
        let (partition, offset, timestamp) = (*partition, *offset, Some(wall(*at)));
        let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
        RecordView {
            key,
            value,
            partition,
            offset,
            timestamp,
            headers: &**intent,
            deferral: told.as_ref().or(deferral.as_ref()),
        }
    }
}

#[derive(Clone)]
enum Pending {
    Assign(i32, Vec<i32>),
    Revoke,
}

pub struct SimSource {
    env: Env,
    broker: Shared,
    log: Log,
    process: u64,
    /// `None`: it is in no group.
    member: Option<u64>,
    /// The generation of its assignment; -1 for none.
    held: i32,
    positions: BTreeMap<i32, i64>,
    /// Partitions that were put back and are not read on.
    paused: BTreeSet<i32>,
    /// Where partitions ended when they were read to their end, and where they go on that were put back.
    ends: BTreeMap<i32, i64>,
    /// Partitions that are read and have not told their end since they began, or gave a record.
    unended: BTreeSet<i32>,
    /// When each broker answers again.
    answers: [Duration; LEADERS],
    starts: Vec<Progress>,
    pending: Option<Pending>,
    /// When it was assigned or last went back.
    since: Duration,
}

impl SimSource {
    pub fn new(env: &Env, broker: &Shared, log: Log, process: u64) -> Self {
        Self {
            env: env.clone(),
            broker: Rc::clone(broker),
            log,
            process,
            member: None,
            held: -1,
            positions: BTreeMap::new(),
            paused: BTreeSet::new(),
            ends: BTreeMap::new(),
            unended: BTreeSet::new(),
            answers: [Duration::ZERO; LEADERS],
            starts: Vec::new(),
            pending: None,
            since: Duration::ZERO,
        }
    }

    /// The news of the heartbeats.
    fn serve(&mut self) -> Option<GroupEvent> {
        let mut broker = self.broker.borrow_mut();
        let group = broker.group(self.log);
        let look = self.member.map_or(Look::Unknown, |member| group.look(member, self.held));
        match look {
            Look::Nothing => {}
            Look::Unknown | Look::Rejoin if self.held >= 0 => self.pending = Some(Pending::Revoke),
            Look::Unknown => {
                self.pending = None;
                self.member = Some(group.join(self.process, self.log));
            }
            Look::Rejoin => {
                self.pending = None;
                if let Some(member) = self.member {
                    group.rejoin(member);
                }
            }
            Look::Assigned(generation, partitions) => self.pending = Some(Pending::Assign(generation, partitions)),
        }
        self.pending.as_ref().map(|pending| match pending {
            Pending::Assign(..) => GroupEvent::Assigned,
            Pending::Revoke => GroupEvent::Revoked,
        })
    }

    /// Starts at the committed offsets, as a member of a generation.
    async fn start(&mut self, partitions: &[i32], generation: i32) -> Result<(), SourceError> {
        self.since = self.env.passed();
        self.env.sleep(self.env.millis(1, 20)).await;
        if self.env.kafka_fails() {
            self.env.sleep(Duration::from_secs(4)).await;
            return Err(SourceError::Temporary("the committed offsets cannot be read (simulated)".to_owned()));
        }
        let offsets = self.broker.borrow_mut().committed_offsets(self.log, partitions).map_err(|refusal| {
            SourceError::Temporary(format!("a transaction is open on these partitions: {refusal:?}"))
        })?;
        let missing = offsets.iter().filter(|(_, committed)| committed.is_none()).map(|(partition, _)| *partition);
        let missing: Vec<i32> = missing.collect();
        let mut starts: Vec<Progress> = offsets.into_iter().filter_map(|(_, committed)| committed).collect();
        if self.log == Log::Input && !missing.is_empty() && self.broker.borrow().starts_at_ends {
            starts.extend(self.begin(&missing, generation)?);
        }
        self.env.sleep(self.env.millis(1, 20)).await;
        self.positions = partitions.iter().map(|partition| (*partition, 0)).collect();
        self.positions.extend(starts.iter().map(|start| (start.partition, start.next_offset)));
        self.paused.clear();
        self.ends.clear();
        self.unended = self.positions.keys().copied().collect();
        self.starts = starts;
        Ok(())
    }

    /// Where these partitions start, of which nothing was committed.
    fn begin(&self, missing: &[i32], generation: i32) -> Result<Vec<Progress>, SourceError> {
        let member = self.member.ok_or_else(|| SourceError::Temporary("the consumer is in no group yet".to_owned()))?;
        let begun = self.broker.borrow_mut().begin((self.log, member, generation), missing);
        let begun = begun.map_err(SourceError::Temporary)?;
        if self.env.kafka_fails() {
            return Err(SourceError::Temporary("the reply to the start of partitions is lost (simulated)".to_owned()));
        }
        Ok(begun)
    }

    fn fetch(&mut self, batch: &mut Batch, max: usize) {
        let mut broker = self.broker.borrow_mut();
        broker.pass_time();
        // The planted bug: nobody reads what waits for a route that is removed.
        let unread = self.env.sabotage() == Sabotage::RemovedRouteUnread && lock(&broker.downstream).is_removed;
        if self.log == Log::Waiting && unread {
            return;
        }
        let now = self.env.passed();
        // What the client has fetched by now: no more than so many a partition and look.
        let most = 1 + self.env.index(40);
        let of_ring = matches!(self.log, Log::Ring(_));
        // All others have told their end, and have no more.
        let partitions: BTreeSet<i32> = broker.with_records(self.log).chain(self.unended.clone()).collect();
        for partition in partitions {
            let leader = usize::try_from(partition).unwrap() % LEADERS;
            let is_silent = of_ring && self.answers[leader] > now;
            let is_read = !is_silent && !self.paused.contains(&partition);
            let Some(position) = self.positions.get_mut(&partition).filter(|_| is_read) else { continue };
            let most = most.min(max.saturating_sub(batch.0.len()));
            for intent in broker.readable((self.log, partition), *position).take(most) {
                *position = intent.offset + 1;
                let told = told(&self.env, intent);
                batch.0.push(Fetched { intent: Arc::clone(intent), at: now, told });
                self.ends.remove(&partition);
                self.unended.insert(partition);
            }
            if broker.readable((self.log, partition), *position).next().is_none() {
                self.ends.insert(partition, broker.stable_end((self.log, partition), *position));
                self.unended.remove(&partition);
            }
        }
        drop(broker);
        // Nothing is drawn for a planted bug: the seed that shows it stays the same.
        if of_ring && self.env.sabotage() == Sabotage::None {
            for answers in self.answers.iter_mut().filter(|answers| **answers <= now) {
                if self.env.chance(5) {
                    *answers = now + self.env.millis(0, 3_000);
                }
            }
        }
    }

    /// Leaves the group, as a lane that stops in order does.
    pub fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            self.broker.borrow_mut().group(self.log).leave(member);
        }
    }
}

/// What a source says of a record's deferral, where a planted bug has it say something else than it should.
fn told(env: &Env, intent: &Intent) -> Option<Deferral> {
    const EARLY_MS: i64 = 60 * 1000;
    let deferral = intent.deferral.as_ref().filter(|_| intent.log == Log::Ring(Ring::Minutes))?;
    if env.sabotage() == Sabotage::ReleasedEarly {
        return Some(Deferral { due: deferral.due.plus(-EARLY_MS), ..deferral.clone() });
    }
    let is_decided_again = env.sabotage() == Sabotage::RetryDecided && intent.retry.is_some();
    is_decided_again.then(|| Deferral { why: DeferReason::TooEarly, ..deferral.clone() })
}

impl Source for SimSource {
    type Batch = Batch;
    type Membership = Membership;

    fn batch(&self) -> Batch {
        Batch::default()
    }

    async fn poll(&mut self, batch: &mut Batch, max: usize, wait: Duration) -> Result<Option<GroupEvent>, SourceError> {
        let deadline = self.env.passed() + wait;
        loop {
            if let Some(event) = self.serve() {
                return Ok(Some(event));
            }
            if max > 0 && self.held >= 0 {
                if self.env.kafka_fails() && self.env.chance(50) {
                    return Err(SourceError::Temporary("a message took a side way (simulated)".to_owned()));
                }
                self.fetch(batch, max);
            }
            let left = deadline.saturating_sub(self.env.passed());
            if batch.0.len() >= max || left.is_zero() {
                return Ok(None);
            }
            self.env.sleep(left.min(Duration::from_millis(50))).await;
        }
    }

    async fn settle(&mut self) -> Result<(), SourceError> {
        match self.pending.clone() {
            None => {}
            Some(Pending::Assign(generation, partitions)) => {
                self.start(&partitions, generation).await?;
                self.held = generation;
            }
            Some(Pending::Revoke) => {
                self.positions.clear();
                self.paused.clear();
                self.ends.clear();
                self.unended.clear();
                self.starts.clear();
                self.held = -1;
            }
        }
        self.pending = None;
        Ok(())
    }

    async fn rewind(&mut self) -> Result<(), SourceError> {
        assert!(self.pending.is_none(), "what is revoked must not be read again");
        if self.env.sabotage() == Sabotage::ForgetRewind {
            return Ok(());
        }
        let partitions: Vec<i32> = self.positions.keys().copied().collect();
        self.start(&partitions, self.held).await
    }

    async fn put_back(&mut self, batch: &mut Batch, from: &[(i32, i64)]) -> Result<(), SourceError> {
        if self.env.kafka_fails() {
            return Err(SourceError::Temporary("no way back (simulated)".to_owned()));
        }
        let from: BTreeMap<i32, i64> = from.iter().copied().collect();
        batch.0.retain(|Fetched { intent, .. }| from.get(&intent.partition).is_none_or(|from| intent.offset < *from));
        self.paused.extend(from.keys());
        self.unended.retain(|partition| !from.contains_key(partition));
        self.ends.extend(&from);
        self.positions.extend(from);
        self.env.sleep(self.env.millis(1, 20)).await;
        Ok(())
    }

    async fn resume(&mut self, partitions: &[i32]) -> Result<(), SourceError> {
        if self.env.kafka_fails() {
            return Err(SourceError::Temporary("no way on (simulated)".to_owned()));
        }
        // A wheel's buckets alone are read one after the other.
        if let (Log::Ring(ring), Some(partition)) = (self.log, self.unended.first()) {
            let broken = format!("wheel: {partitions:?} of {ring:?} are read on before {partition} is at its end");
            self.broker.borrow_mut().broken.push(broken);
        }
        for partition in partitions {
            self.paused.remove(partition);
            self.unended.insert(*partition);
        }
        Ok(())
    }

    fn membership(&self) -> Result<Membership, SourceError> {
        match self.member {
            Some(member) if self.held >= 0 => Ok((self.log, member, self.held)),
            Some(_) | None => Err(SourceError::Temporary("the consumer is in no group yet".to_owned())),
        }
    }

    fn partitions(&self) -> usize {
        self.positions.len()
    }

    fn starts(&self) -> &[Progress] {
        &self.starts
    }

    fn ends_read(&self) -> Vec<Progress> {
        self.ends.iter().map(|(&partition, &next_offset)| Progress { partition, next_offset }).collect()
    }

    fn read_before(&self) -> ReadBefore {
        if self.env.sabotage() == Sabotage::GatesBeforeReplays {
            return ReadBefore::none();
        }
        let over = self.since + EARLIER_READERS_END;
        if self.env.passed() < over {
            return ReadBefore::All;
        }
        let broker = self.broker.borrow();
        let end = |partition: &i32| (*partition, broker.end_at((self.log, *partition), over));
        ReadBefore::Below(Arc::new(self.positions.keys().map(end).collect()))
    }

    fn lag(&self, _: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        Vec::new()
    }
}
