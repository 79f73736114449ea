//! The log of activity in memory: the reference that `lua/sync.lua` must equal.

use std::{collections::BTreeMap, fmt};

use super::{ActiveIn, Cursor, SharedPlaces, SyncReply, SyncRequest};
use crate::{
    basis::time::Time,
    limit::{
        pressure::activity::ActivityHash,
        share::{Member, MemberRecords, Reference, TurnNumber, TurnOrder, Wanting, fair_share, grow},
    },
};

/// Users of one entry, at most.
pub const USERS_AN_ENTRY: usize = 4_096;
/// Entries stay a little longer than the window: clocks differ, and users may be told late.
const SLACK_MS: i64 = 120_000;
/// For how long the places of a member that ended without leaving still count, from when another's turn finds that it has ended: while Redis
/// did not answer it, it may have brought users in, whom it reports with its next turn.
const COUNTS_ON_MS: i64 = 10_000;
/// What a turn reads at most, in bytes, where each entry counts as [`ENTRY_BYTES`] more.
const MOST_BYTES: usize = 1024 * 1024;
const ENTRY_BYTES: usize = 100;
/// Entries that are read at once: the bytes are looked at after these.
const ENTRIES_AT_ONCE: usize = 16;
/// What begins a cursor, while the instance's own entries are still to be read.
const READS_OWN: char = '*';

/// Who became active, as instances told it, and the places that they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    log: BTreeMap<EntryId, LogEntry>,
    /// The id of the last entry, also where that was removed.
    last: EntryId,
    /// When the log is forgotten, in milliseconds since 1970.
    log_ends: i64,
    members: MemberRecords<RoomTold>,
    /// Members that ended without leaving, while their places still count.
    ended: MemberRecords<RoomTold>,
    /// How many new users all entries had together that were ever appended.
    appended: u64,
    /// When the members and that number are.
    members_end: i64,
}

/// Of a Redis stream: milliseconds since 1970, and a number within these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct EntryId(i64, u64);

/// What one instance told, of one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogEntry {
    instance: String,
    active: ActiveIn,
}

/// What is recorded of a member beside the places that it holds, and how many users want one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoomTold {
    /// The room of its last turn, without those whom it read of then.
    room: Option<u64>,
    /// How many new users had been appended by then.
    appended: u64,
}

impl Reference<SharedPlaces> for Book {
    fn new(_: &()) -> Self {
        Self::default()
    }

    fn turn(&mut self, instance: &str, number: TurnNumber, request: &SyncRequest, at: Time) -> Option<SyncReply> {
        let now = at.millis();
        if now >= self.log_ends {
            (self.log, self.last) = (BTreeMap::new(), EntryId::default());
        }
        if now >= self.members_end {
            (self.members, self.ended, self.appended) = Default::default();
        }
        let order = self.members.order(instance, number, now);
        if matches!(order, TurnOrder::Behind | TurnOrder::RunBefore) {
            return None;
        }
        let mut reply = SyncReply { now: at, ..SyncReply::default() };
        let read = self.read(&mut reply, instance, request);
        let appended = if order == TurnOrder::New { self.append(instance, request, now) } else { None };
        self.share(&mut reply, (instance, number), request);
        let own = if cursor(&request.cursor).0 && reply.more { READS_OWN.to_string() } else { String::new() };
        let cursor = appended.filter(|_| !reply.more).or(read);
        reply.cursor = cursor.map(|id| format!("{own}{id}").into());
        Some(reply)
    }
}

impl Book {
    /// Reads the entries after the cursor, without the instance's own unless it does not know them. Gives the last one read, or the one to
    /// read on from.
    fn read(&self, reply: &mut SyncReply, instance: &str, request: &SyncRequest) -> Option<EntryId> {
        let ((with_own, mut last), now) = (cursor(&request.cursor), reply.now.millis());
        let mut from = begin(request, now);
        match last {
            Some(cursor) if cursor.0 >= now - request.window_ms && !self.log.contains_key(&cursor) => {
                (reply.lost, last) = (true, None);
            }
            Some(cursor) if cursor >= from => from = cursor.next(),
            Some(_) | None => {}
        }
        let (mut entries, mut bytes) = (self.log.range(from..).peekable(), 0);
        while !reply.more && entries.peek().is_some() {
            let mut at_once = 0;
            for (id, LogEntry { instance: teller, active }) in entries.by_ref().take(ENTRIES_AT_ONCE) {
                (at_once, bytes) = (at_once + 1, bytes + active.users.len() * size_of::<ActivityHash>() + ENTRY_BYTES);
                last = Some(*id);
                if with_own || teller != instance {
                    reply.active.push(active.clone());
                }
            }
            reply.more = at_once == ENTRIES_AT_ONCE && bytes >= MOST_BYTES;
        }
        last
    }

    /// Appends what the instance tells, and removes what has left the window; gives the last entry.
    fn append(&mut self, instance: &str, request: &SyncRequest, now: i64) -> Option<EntryId> {
        let mut appended = None;
        for active in request.active.iter().flat_map(entries) {
            if active.new > 0 {
                self.appended += active.new;
                self.members_end = keep_until(request, now);
            }
            self.last = if now > self.last.0 { EntryId(now, 0) } else { self.last.next() };
            self.log.insert(self.last, LogEntry { instance: instance.to_owned(), active });
            self.log = self.log.split_off(&begin(request, now));
            self.log_ends = keep_until(request, now);
            appended = Some(self.last);
        }
        appended
    }

    /// Shares what is left of the room.
    ///
    /// An instance that was no member before this turn gets no more places: after a loss of the members, all of them have to take a turn
    /// before it is known what they hold.
    fn share(&mut self, reply: &mut SyncReply, (instance, number): (&str, TurnNumber), request: &SyncRequest) {
        let now = reply.now.millis();
        let SyncRequest { wanted, mut held, .. } = *request;
        self.ended.drop_ended(now);
        for (name, member) in self.members.drop_ended(now) {
            self.ended.renew(&name, Member { ends: now + COUNTS_ON_MS, ..member });
        }
        self.ended.remove(instance);
        let before = self.members.get(instance, now).copied();
        if request.member_for_ms == 0 {
            self.members.remove(instance);
            (reply.held, reply.members) = (held, self.members.count());
            return;
        }
        let told: u64 = reply.active.iter().map(|active| active.new).sum();
        let room = request.room.map(|room| room.saturating_sub(told));
        let own = Wanting { want: wanted, name: instance };
        let part_of = |total| fair_share(total, own, self.members.wants(instance), now);
        let part = room.map_or(0, part_of);
        match (before, room) {
            (Some(before), _) if before.last == number => held = before.held,
            (Some(_), Some(room)) if !reply.more => {
                let others = || self.members.others(instance).map(|(_, member)| member);
                // Who knows of fewer users lets no more in than who knows of more.
                let rooms = others().filter_map(|Member { more: RoomTold { room, appended }, .. }| {
                    Some((*room)?.saturating_sub(self.appended.saturating_sub(*appended)))
                });
                let left = rooms.fold(room, u64::min);
                let ended = self.ended.all().map(|(_, member)| member);
                let others_hold: u64 = others().chain(ended).map(|member| member.held).sum();
                held = held.max(grow(left, others_hold, held, part_of(left)));
            }
            (Some(_) | None, _) => {}
        }
        let more = RoomTold { room, appended: self.appended };
        self.members.renew(instance, Member { last: number, ends: now + request.member_for_ms, held, wanted, more });
        self.members_end = keep_until(request, now);
        (reply.held, reply.part, reply.members) = (held, part, self.members.count());
    }
}

/// Entries before it are removed.
fn begin(request: &SyncRequest, now: i64) -> EntryId {
    EntryId(now - request.window_ms - SLACK_MS, 0)
}

/// Until when the log is kept without another turn.
fn keep_until(request: &SyncRequest, now: i64) -> i64 {
    now + request.window_ms + 2 * SLACK_MS
}

/// Whether own entries are read, too, and the entry that was read last.
fn cursor(cursor: &Cursor) -> (bool, Option<EntryId>) {
    let Some(text) = cursor.as_deref() else { return (true, None) };
    let own = text.strip_prefix(READS_OWN);
    let id = own.unwrap_or(text).split_once('-');
    let id = id.and_then(|(millis, number)| Some(EntryId(millis.parse().ok()?, number.parse().ok()?)));
    (own.is_some(), id)
}

/// What is told of a minute, in entries of so many users at most.
fn entries(active: &ActiveIn) -> impl Iterator<Item = ActiveIn> {
    let mut left = active.new;
    active.users.chunks(USERS_AN_ENTRY).map(move |users| {
        let new = left.min(users.len() as u64);
        left -= new;
        ActiveIn { minute: active.minute, new, users: users.to_vec() }
    })
}

impl EntryId {
    fn next(self) -> Self {
        Self(self.0, self.1 + 1)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}
