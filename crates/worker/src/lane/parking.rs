//! Intents that wait for shards that are away, while the lane goes on with what is behind them.
//!
//! What waits is told apart by [`Parked`], partition by partition, and committed as the offset's metadata: the committed
//! offset is that of the first intent that waits. When a shard is back, the lane goes back there and reads again; what is
//! done is passed over.
//!
//! invariant: of a user, nothing is decided while something before it in its partition waits: a shard with intents that
//! wait behind the place of reading is not asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::{
    decider::{Decoded, Disposition, GateResult},
    parked::{Condition, Parked, ParkedError, ROOM_BYTES},
    ports::{Clock, Sink, Source, Store},
    record::{Progress, RecordView, Records, progress_of},
};

use super::{
    Interruption, Lane, LaneState, deferred_writes::Promise, unavailable_shards::UnavailableShards,
    waiting::OffsetRanges,
};

/// A lane goes back again when it has read ahead for so many times as long as it had gone back for: a shard that seems to be
/// back and is not must not keep it from the others.
const AHEAD_AGAIN: u32 = 3;

/// Offsets that are all done are passed over in one step from so many on: fewer are read sooner than a new fetch brings more.
const WORTH_A_STEP: i64 = 50_000;

/// One partition in which something waits.
#[derive(Debug)]
struct Part {
    parked: Parked,
    /// The next offset to be read: before [`Parked::next`] where the lane has gone back.
    position: i64,
}

/// What waits of all partitions; empty as a rule.
#[derive(Debug, Default)]
pub(super) struct Parking {
    /// Where the intents' fields are, see [`weir_core::fields::FieldMap::digest`].
    fields: u64,
    parts: BTreeMap<i32, Part>,
    /// When the lane went back, until it is where it was.
    went_back_at: Option<Duration>,
    /// Until when it does not go back again.
    ahead_until: Duration,
}

impl Parking {
    pub(super) fn new(fields: u64) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Where to read a partition from: behind all that was read, also where something before waits.
    pub(super) fn begin(&self, committed: &Progress) -> i64 {
        self.read(committed).map_or(committed.next_offset, |parked| parked.next().max(committed.next_offset))
    }

    /// What waits by the metadata of a committed offset. Others' metadata says nothing.
    fn read(&self, committed: &Progress) -> Result<Parked, ParkedError> {
        let nothing = || Ok(Parked::nothing(committed.next_offset));
        match committed.metadata.as_deref().map(|text| Parked::of_text(text, self.fields)) {
            None | Some(Err(ParkedError::NotOurs)) => nothing(),
            Some(read) => read,
        }
    }

    /// Takes up what is committed; what is not is forgotten.
    ///
    /// # Errors
    /// What waits cannot be told.
    pub(super) fn start(&mut self, starts: &[Progress]) -> Result<(), String> {
        self.parts.clear();
        self.went_back_at = None;
        for start in starts {
            let parked = self
                .read(start)
                .map_err(|error| format!("partition {}, offset {}: {error}", start.partition, start.next_offset))?;
            if parked.first().is_some() {
                let position = parked.next();
                self.parts.insert(start.partition, Part { parked, position });
            }
        }
        Ok(())
    }

    /// Whether the intent of a promise is still to be decided, by what was taken up last.
    fn is_open(&self, start: &Progress, promise: &Promise) -> bool {
        match self.parts.get(&start.partition) {
            None => promise.offset >= start.next_offset,
            Some(part) => part.parked.is_open(promise.offset, promise.send.user, &promise.send.class()),
        }
    }

    /// Which records of a batch are done already, by their places; nothing where none is.
    pub(super) fn done<'b>(&self, batch: &'b impl Records, decoded: &[Decoded<'b>]) -> Vec<bool> {
        if self.parts.is_empty() {
            return Vec::new();
        }
        let done = |index: usize| {
            let RecordView { partition, offset, .. } = batch.get(index);
            let Some(part) = self.parts.get(&partition) else { return false };
            if offset >= part.parked.next() {
                return false;
            }
            let Ok(intent) = &decoded[index] else { return true };
            !part.parked.is_open(offset, intent.user, &intent.class())
        };
        (0..batch.len()).map(done).collect()
    }

    /// The shards that intents before the place of reading wait for.
    pub(super) fn awaited(&self, shards: u16) -> BTreeSet<u16> {
        let of = |part: &Part| part.parked.awaited(part.position, shards);
        self.parts.values().filter_map(of).flatten().collect()
    }

    /// Whether the lane has to go back to what waits, or ahead over what is done, before it reads on.
    pub(super) fn has_to_step(&self, away: &UnavailableShards, shards: u16, now: Duration) -> bool {
        !self.steps(away, shards, now).is_empty()
    }

    /// The lane has waited for shards for so long, reading nothing: that is no part of the way back.
    pub(super) fn waited(&mut self, wait: Duration) {
        self.went_back_at = self.went_back_at.map(|since| since + wait);
    }

    /// Notes whether the lane is where it was before it went back.
    fn look_ahead(&mut self, now: Duration) {
        let there = self.parts.values().all(|part| part.position >= part.parked.next());
        if let Some(since) = self.went_back_at.filter(|_| there) {
            self.went_back_at = None;
            self.ahead_until = now + now.saturating_sub(since) * AHEAD_AGAIN;
        }
    }

    /// Where to go on in which partitions: back to the first intent that waits, where one waits for a shard that is not
    /// known to be away; or ahead, over what is done.
    fn steps(&self, away: &UnavailableShards, shards: u16, now: Duration) -> Vec<(i32, i64)> {
        let may_go_back = self.went_back_at.is_none() && now >= self.ahead_until;
        let step = |(&partition, part): (&i32, &Part)| {
            let awaited = part.parked.awaited(part.position, shards);
            let back =
                may_go_back && awaited.is_none_or(|awaited| awaited.iter().any(|shard| !away.is_watched(*shard)));
            let first = part.parked.first().filter(|first| back && *first < part.position);
            let ahead = part.parked.next_open(part.position);
            let to = first.or((ahead - part.position >= WORTH_A_STEP).then_some(ahead))?;
            Some((partition, to))
        };
        self.parts.iter().filter_map(step).collect()
    }

    /// Whether what waits can still be told in an offset's metadata if a batch of this reach adds to it.
    pub(super) fn has_room(&self, offset_ranges: &OffsetRanges, condition: &Condition) -> bool {
        // As if something of every shard had been decided: then the least is joined.
        let decided: BTreeSet<u16> = (0..condition.terms.shards()).collect();
        offset_ranges.iter().all(|(partition, &(first, behind))| {
            let part = self.parts.get(partition);
            let mut parked = part.map_or_else(|| Parked::nothing(first), |part| part.parked.clone());
            parked.read((part.map_or(first, |part| part.position), behind), Some(condition), &decided);
            parked.text(self.fields).len() <= ROOM_BYTES
        })
    }

    /// A batch is handed over to be committed, all of it done but what meets the condition. `decided` are the shards of
    /// what was decided in it. Gives how far that brings each partition.
    pub(super) fn advance(
        &mut self,
        batch: &impl Records,
        waits: Option<&Condition>,
        decided: &BTreeSet<u16>,
    ) -> Vec<Progress> {
        if self.parts.is_empty() && waits.is_none() {
            return progress_of(batch);
        }
        let offset_ranges = offset_ranges(batch);
        let mut all = Vec::with_capacity(offset_ranges.len());
        for (partition, (first, to)) in offset_ranges {
            let fresh = || Part { parked: Parked::nothing(first), position: first };
            let part = self.parts.entry(partition).or_insert_with(fresh);
            part.parked.read((part.position, to), waits, decided);
            part.position = to;
            all.push(match part.parked.first() {
                None => Progress::up_to(partition, part.parked.next()),
                Some(first) => {
                    let metadata = Some(part.parked.text(self.fields));
                    Progress { partition, next_offset: first, metadata }
                }
            });
        }
        // A lane that has gone back knows by it what is done, until it is there again.
        self.parts.retain(|_, part| part.parked.first().is_some() || part.position < part.parked.next());
        all
    }

    /// How many offsets there are of a partition from the first intent that waits to where nothing was read yet.
    pub(super) fn offsets(&self, partition: i32) -> i64 {
        let of = |part: &Part| Some(part.parked.next() - part.parked.first()?);
        self.parts.get(&partition).and_then(of).unwrap_or(0)
    }
}

/// The first offset of each partition, and the one behind the last.
pub(super) fn offset_ranges(records: &impl Records) -> OffsetRanges {
    let mut offset_ranges = OffsetRanges::new();
    for index in 0..records.len() {
        let RecordView { partition, offset, .. } = records.get(index);
        offset_ranges.entry(partition).or_insert((offset, offset)).1 = offset + 1;
    }
    offset_ranges
}

/// What of a batch waits, by its gate results: they are left out from now on. Gives the shards of what is decided, of the classes
/// that would have waited.
pub(super) fn leave_out(
    decoded: &[Decoded<'_>],
    gate_results: &mut [GateResult],
    condition: &Condition,
) -> BTreeSet<u16> {
    let mut decided = BTreeSet::new();
    for (decoded, gate_result) in decoded.iter().zip(gate_results) {
        let (Ok(intent), false) = (decoded, gate_result.disposition == Disposition::Skip) else { continue };
        let (user, class) = (intent.user, intent.class());
        if condition.holds(user, &class) {
            gate_result.disposition = Disposition::Skip;
        } else if condition.terms.waits(&class) {
            decided.insert(user.shard(condition.terms.shards()));
        }
    }
    decided
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Goes back to intents whose shards may be there again, and ahead over what is done, when what is in flight is
    /// committed. Cheap where none wait.
    pub(super) async fn seek_to_pending(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        let now = self.clock.passed();
        state.parking.look_ahead(now);
        if !state.parking.has_to_step(&state.unavailable, self.store.shards(), now) {
            return Ok(());
        }
        self.await_commit(state).await?;
        let to = state.parking.steps(&state.unavailable, self.store.shards(), now);
        self.source.seek(&to).await?;
        for &(partition, offset) in &to {
            if let Some(part) = state.parking.parts.get_mut(&partition) {
                if offset < part.position {
                    let again = part.parked.next() - offset;
                    tracing::info!(partition, offset, again, "shards are back: reading again from what waits for them");
                    state.parking.went_back_at = Some(now);
                }
                part.position = offset;
            }
        }
        Ok(())
    }

    /// Takes up what is committed: what waits, and for which shards.
    pub(super) fn take_up_starts(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        self.decider.topic.id = self.source.topic_id();
        let starts = self.source.starts();
        state.parking.start(starts).map_err(Interruption::Fatal)?;
        for shard in state.parking.awaited(self.store.shards()) {
            state.unavailable.suppose(shard);
        }
        state.committed = starts.iter().map(|start| (start.partition, start.next_offset)).collect();
        let LaneState { parking, deferred, .. } = state;
        deferred.settle(starts, |start, promise| parking.is_open(start, promise), &*self.metrics);
        Ok(())
    }
}
