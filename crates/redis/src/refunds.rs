//! Refunds in Redis: grouped by shard, kept in order, taken once (`lua/refund.lua`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redis::Value;
use weir_core::{
    basis::{origin::Topic, shard::Place},
    history::{
        MAX_ENTRY_MS,
        refund::{Refund, RefundOutcome},
    },
    ports::{StoreError, TakeBack},
};

use super::{
    cluster::Cluster,
    keyspace::{Guard, Keyspace},
    node::Request,
    open::{look_at_epochs, renewed},
    options::RedisOptions,
    packing::{put_field, put_u16, script_time},
    script::Script,
    sequence::{self, Sequences},
    stats::RedisStats,
};

/// The most refunds that one call carries: far under a millisecond.
const MAX_REFUNDS_A_CALL: usize = 128;

/// Takes refunds, over connections of its own.
pub struct RedisRefunds {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    /// Shards that had lost their history, and for which refunds wait: for all of them until one has it again.
    lost: BTreeSet<u16>,
}

impl RedisRefunds {
    /// Refunds on a keyspace that [`super::open`] has verified. Connects when first asked.
    pub fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>, opened: &super::Opened) -> Self {
        Self { cluster: Cluster::new(options, stats), keyspace: Arc::clone(&opened.keyspace), lost: BTreeSet::new() }
    }
}

impl TakeBack for RedisRefunds {
    async fn take_back(
        &mut self,
        topic: &Topic,
        refunds: &[Refund],
        outcomes: &mut [Option<RefundOutcome>],
    ) -> Result<(), StoreError> {
        let Self { cluster, keyspace, lost } = self;
        let layout = keyspace.meta().layout;
        let is_lost = |lost: &BTreeSet<u16>, at: &usize| lost.contains(&layout.place(refunds[*at].user).shard);
        let open = (0..refunds.len()).filter(|&at| outcomes.get(at).is_some_and(Option::is_none));
        // Behind one that waits all of its shard do: the mark would pass it.
        let (waiting, open): (Vec<usize>, Vec<usize>) = open.partition(|at| is_lost(lost, at));
        waiting.into_iter().for_each(|at| outcomes[at] = Some(RefundOutcome::Waits));
        let wanted = Wanted { guard: Guard::Epoch(keyspace.epoch()), topic, refunds, open: &open };
        let ended = take(cluster, keyspace, &wanted, outcomes).await;
        if !ended.lost.is_empty()
            && let Some(made_anew) = renewed(cluster, keyspace).await
        {
            *keyspace = made_anew;
            return Err(StoreError::Temporary("a rebuild has recreated the keyspace: trying again with it".to_owned()));
        }
        lost.extend(ended.lost.keys());
        for at in open {
            if outcomes[at].is_none() && is_lost(lost, &at) {
                outcomes[at] = Some(RefundOutcome::Waits);
            }
        }
        ended.open.map_or(Ok(()), |why| Err(StoreError::Temporary(format!("refunds wait: {why}"))))
    }

    async fn any_back(&mut self) -> bool {
        let Self { cluster, keyspace, lost } = self;
        let is_any_back = if let Some(made_anew) = renewed(cluster, keyspace).await {
            *keyspace = made_anew;
            true
        } else {
            !look_at_epochs(cluster, keyspace, lost.iter().copied().collect()).await.whole.is_empty()
        };
        if is_any_back {
            // All that waits is read again.
            lost.clear();
        }
        is_any_back
    }
}

/// The field of a shard's marks that says how far a partition is taken. No topic's name has a colon. A recreated topic, whose offsets
/// start again, has marks of its own.
pub(super) fn mark_field(Topic { name, id }: &Topic, partition: i32) -> String {
    format!("{name}:{id}:{partition}")
}

pub(super) struct Wanted<'w> {
    pub(super) guard: Guard<'w>,
    pub(super) topic: &'w Topic,
    /// All of a batch, in the order of each partition.
    pub(super) refunds: &'w [Refund],
    /// The places of the open ones, ascending.
    pub(super) open: &'w [usize],
}

pub(super) async fn take(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    wanted: &Wanted<'_>,
    outcomes: &mut [Option<RefundOutcome>],
) -> sequence::Ended {
    let Wanted { guard, topic, refunds, open } = *wanted;
    let layout = keyspace.meta().layout;
    let mut groups: BTreeMap<(u16, i32), Vec<(Place, usize)>> = BTreeMap::new();
    for &at in open {
        let place = layout.place(refunds[at].user);
        groups.entry((place.shard, refunds[at].partition)).or_default().push((place, at));
    }
    let mut calls = Sequences::<Vec<usize>>::new();
    for ((shard, partition), group) in groups {
        let field = mark_field(topic, partition);
        for piece in group.chunks(MAX_REFUNDS_A_CALL) {
            let request = request(keyspace, guard, &field, piece, refunds);
            calls.entry(shard).or_default().push_back((request, piece.iter().map(|(_, at)| *at).collect()));
        }
    }
    sequence::run_shards(cluster, keyspace, calls, |places, value| {
        let Value::BulkString(bytes) = value else { return false };
        let read: Option<Vec<RefundOutcome>> = bytes.iter().map(|code| outcome(*code)).collect();
        let Some(read) = read.filter(|read| read.len() == places.len()) else { return false };
        for (at, outcome) in places.iter().zip(read) {
            outcomes[*at] = Some(outcome);
        }
        true
    })
    .await
}

/// A history that is not whole entries holds no send: whoever asks about its user is told what is wrong with it.
fn outcome(code: u8) -> Option<RefundOutcome> {
    match code {
        0 => Some(RefundOutcome::TakenBack),
        1 | 4 => Some(RefundOutcome::Unknown),
        2 => Some(RefundOutcome::Early),
        3 => Some(RefundOutcome::Repeated),
        _ => None,
    }
}

fn request(
    keyspace: &Keyspace,
    guard: Guard<'_>,
    field: &str,
    piece: &[(Place, usize)],
    refunds: &[Refund],
) -> Request {
    let shard = piece.first().map_or(0, |(place, _)| place.shard);
    let mut buckets: Vec<u32> = piece.iter().map(|(place, _)| place.bucket).collect();
    buckets.sort_unstable();
    buckets.dedup();
    let mut keys = vec![guard.key(keyspace, shard), keyspace.marks_key(shard)];
    keys.extend(buckets.iter().map(|bucket| keyspace.bucket_key(shard, *bucket)));
    let mut items = Vec::with_capacity(24 * piece.len());
    for (place, at) in piece {
        let Refund { id, at: time, offset, .. } = refunds[*at];
        let time = time.map_or(MAX_ENTRY_MS.cast_unsigned(), script_time);
        put_u16(&mut items, buckets.binary_search(&place.bucket).unwrap_or_default());
        items.extend_from_slice(&id.0.to_be_bytes()[2..]);
        items.extend_from_slice(&time.to_be_bytes()[3..]);
        items.extend_from_slice(&offset.max(0).cast_unsigned().to_be_bytes()[2..]);
        put_field(&mut items, place.field);
    }
    Request::call(Script::Refund, keys, [guard.text().into(), field.into(), items])
}
