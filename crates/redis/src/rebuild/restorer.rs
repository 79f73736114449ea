//! Puts sends back into marked shards (`lua/rebuild.lua`), and takes refunds there.

use std::{collections::BTreeSet, sync::Arc};

use redis::Value;
use weir_core::{
    basis::{
        origin::Topic,
        shard::{Place, UserHash},
        time::Time,
    },
    history::{
        ENTRY_BYTES, Entry,
        deferred_send::PastSend,
        refund::{Refund, RefundOutcome},
    },
    intent::class::{Campaign, ClassNames, Kind},
    ports::StoreError,
};

use super::{Purpose, Rebuild, lengthen::marked};
use crate::{
    cluster::Cluster,
    keyspace::{Guard, Keyspace, key_lives_ms},
    names::Names,
    node::Request,
    packing::{put_field, put_u16, script_time},
    plan::MAX_USERS_A_CALL,
    refunds::{self, Wanted},
    script::Script,
    sequence::{self, Ended, Sequences},
};

/// The most entries that one call carries: the longest run stays under a millisecond.
const MAX_ENTRIES_A_CALL: usize = 256;

/// One reader's way into Redis.
pub struct Restorer {
    cluster: Cluster,
    names: Names,
    keyspace: Arc<Keyspace>,
    /// What the shards hold while the run may write.
    owner: String,
    purpose: Purpose,
    /// Of a run that makes the history longer: it takes back no send that was decided then or later.
    before: Option<Time>,
    shards: BTreeSet<u16>,
}

#[derive(Clone, Copy)]
pub(crate) struct PutInto<'p> {
    pub(crate) keyspace: &'p Keyspace,
    pub(crate) guard: Guard<'p>,
}

impl Rebuild {
    /// What puts sends back and takes refunds, over connections of its own.
    pub fn restorer(&self) -> Restorer {
        Restorer {
            cluster: self.cluster.another(),
            names: Names::default(),
            keyspace: Arc::clone(&self.keyspace),
            owner: self.owner(),
            purpose: self.purpose.clone(),
            before: self.before,
            shards: self.shards.clone(),
        }
    }
}

impl Restorer {
    /// Whether a user's history is one of those being restored.
    pub fn wants(&self, user: UserHash) -> bool {
        self.shards.contains(&self.keyspace.meta().layout.place(user).shard)
    }

    /// Puts sends back that are not there yet, and returns how many were not. Sends past the retention at `now` and of
    /// shards that are not being restored are left out. To do it again changes nothing.
    ///
    /// # Errors
    /// Some may not be there: call again. [`StoreError::LostHistory`] where a shard is not this run's any more.
    pub async fn insert(&mut self, sends: &[PastSend<'_>], now: Time) -> Result<u64, StoreError> {
        let Self { cluster, names, keyspace, owner, purpose, shards, .. } = self;
        let layout = keyspace.meta().layout;
        let wanted: Vec<PastSend<'_>> =
            sends.iter().filter(|send| shards.contains(&layout.place(send.user).shard)).copied().collect();
        let into = PutInto { keyspace, guard: purpose.guard(owner) };
        let (ended, added) = put_in(cluster, names, into, &wanted, now).await?;
        told(ended).map(|()| added)
    }

    /// Takes refunds of marked shards, in order of offset within each partition; those of other shards are left as they
    /// are. A run that makes the history longer takes back only the sends that it puts back, those before
    /// [`super::Rebuild::lengthens_before`]: what a refund could take of later ones, it took when it was published.
    pub async fn take_back(
        &mut self,
        topic: &Topic,
        refunds: &[Refund],
        outcomes: &mut [Option<RefundOutcome>],
    ) -> Result<(), StoreError> {
        let layout = self.keyspace.meta().layout;
        let wanted =
            |at: &usize| self.shards.contains(&layout.place(refunds[*at].user).shard) && outcomes[*at].is_none();
        let open: Vec<usize> = (0..refunds.len()).filter(wanted).collect();
        let latest = self.before.map(|before| before.plus(-1));
        let refunds: Vec<Refund> = refunds.iter().map(|refund| of_sends_until(refund, latest)).collect();
        let Self { cluster, keyspace, owner, purpose, .. } = self;
        let (guard, topic) = (purpose.guard(owner), &marked(topic, purpose));
        let wanted = Wanted { guard, topic, refunds: &refunds, open: &open };
        told(refunds::take(cluster, keyspace, &wanted, outcomes).await)
    }
}

/// The refund, where it takes no send that was decided later than that.
fn of_sends_until(refund: &Refund, latest: Option<Time>) -> Refund {
    let at = match (refund.at, latest) {
        (Some(at), Some(latest)) => Some(at.min(latest)),
        (at, latest) => at.or(latest),
    };
    Refund { at, ..*refund }
}

impl Purpose {
    fn guard<'o>(&self, owner: &'o str) -> Guard<'o> {
        match self {
            Self::Restore => Guard::Epoch(owner),
            Self::Lengthen(_) => Guard::LastRun(owner),
        }
    }
}

/// Inserts sends within the retention at `now` into shards that hold what the guard says, and returns how many were missing.
///
/// # Errors
/// The numbers of a class cannot be had; then nothing was sent.
pub(crate) async fn put_in(
    cluster: &mut Cluster,
    names: &mut Names,
    into: PutInto<'_>,
    sends: &[PastSend<'_>],
    now: Time,
) -> Result<(Ended, u64), StoreError> {
    let PutInto { keyspace, guard } = into;
    let (layout, too_old) = (keyspace.meta().layout, now.plus(-keyspace.meta().history_ms));
    let sends: Vec<&PastSend<'_>> = sends.iter().filter(|send| send.at > too_old).collect();
    let classes: Vec<ClassNames<'_>> = sends.iter().map(|send| send.class).collect();
    let (numbers, error) = names.resolve(&classes, cluster, keyspace).await;
    if let Some(error) = error {
        return Err(StoreError::Temporary(error.to_string()));
    }
    let entry = |(send, numbers): (&&PastSend<'_>, Option<(Kind, Campaign)>)| {
        let (kind, campaign) = numbers.unwrap_or_default();
        let PastSend { user, id, origin, at, cost, .. } = **send;
        (layout.place(user), Entry { at, id, origin, kind, campaign, cost }.to_bytes())
    };
    let mut entries: Vec<Placed> = sends.iter().zip(numbers).map(entry).collect();
    // By user and within a user by time, which leads the bytes.
    entries.sort_unstable();
    let ttl_ms = key_lives_ms(keyspace.meta().history_ms);
    let max_entries = cluster.options().max_entries;
    let args = [script_time(too_old).to_string(), ttl_ms.to_string(), max_entries.to_string()];
    let mut calls = Sequences::<()>::new();
    for (shard, piece) in pieces(&entries) {
        calls.entry(shard).or_default().push_back((request(keyspace, guard, &args, piece), ()));
    }
    let mut added = 0;
    let ended = sequence::run_shards(cluster, keyspace, calls, |(), value| {
        let Value::Int(count) = value else { return false };
        added += u64::try_from(*count).unwrap_or_default();
        true
    })
    .await;
    Ok((ended, added))
}

fn told(ended: Ended) -> Result<(), StoreError> {
    if let Some((_, found)) = ended.lost.first_key_value() {
        let message = format!(
            "{found}: lost again while it was restored, or another rebuild has taken over. Run weir rebuild again"
        );
        return Err(StoreError::LostHistory { shards: ended.lost.keys().copied().collect(), message });
    }
    ended.open.map_or(Ok(()), |why| Err(StoreError::Temporary(why)))
}

type Placed = (Place, [u8; ENTRY_BYTES]);

/// Cuts sorted entries into those of one call each.
fn pieces(entries: &[Placed]) -> Vec<(u16, &[Placed])> {
    let (mut pieces, mut start, mut users) = (Vec::new(), 0, 0);
    for at in 0..entries.len() {
        let place = entries[at].0;
        let before = at.checked_sub(1).map(|before| entries[before].0);
        users += usize::from(before != Some(place));
        let full = at - start == MAX_ENTRIES_A_CALL || users > MAX_USERS_A_CALL;
        if at > start && (full || before.is_some_and(|before| before.shard != place.shard)) {
            pieces.push((entries[start].0.shard, &entries[start..at]));
            (start, users) = (at, 1);
        }
    }
    if start < entries.len() {
        pieces.push((entries[start].0.shard, &entries[start..]));
    }
    pieces
}

fn request(keyspace: &Keyspace, guard: Guard<'_>, args: &[String; 3], piece: &[Placed]) -> Request {
    let shard = piece.first().map_or(0, |(place, _)| place.shard);
    let mut keys = vec![guard.key(keyspace, shard)];
    let mut items = Vec::with_capacity(piece.len() * 32);
    for bucket in piece.chunk_by(|a, b| a.0.bucket == b.0.bucket) {
        keys.push(keyspace.bucket_key(shard, bucket[0].0.bucket));
        let users = || bucket.chunk_by(|a, b| a.0.field == b.0.field);
        put_u16(&mut items, users().count());
        users().for_each(|user| put_field(&mut items, user[0].0.field));
        for user in users() {
            put_u16(&mut items, user.len());
            user.iter().for_each(|(_, entry)| items.extend_from_slice(entry));
        }
    }
    let args = std::iter::once(guard.text().into()).chain(args.iter().map(|arg| arg.clone().into_bytes()));
    Request::call(Script::Rebuild, keys, args.chain([items]))
}
