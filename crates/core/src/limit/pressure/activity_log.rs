//! What instances tell each other about who is active, and how they share the places below the maximum ([`SharedPlaces`]); and [`Book`], a
//! log in memory: the reference that `lua/sync.lua` must equal.

mod book;

use crate::{
    basis::time::Time,
    limit::{
        SharedLimit,
        pressure::activity::{ActivityHash, Minute},
    },
};
pub use book::{Book, USERS_AN_ENTRY};

/// The places below the maximum: instances share them, and in the same turn tell each other who is active.
#[derive(Debug, Clone, Copy)]
pub struct SharedPlaces;

impl SharedLimit for SharedPlaces {
    type Key = ();
    type Turn = SyncRequest;
    type Reply = SyncReply;
    type Reference = Book;
}

/// Users that a turn tells, at most: 1 MiB.
pub const USERS_A_TURN: usize = 128 * 1024;

/// How far an instance has read the log; `None`: nothing of it.
pub type Cursor = Option<Box<str>>;

/// One instance's turn: what it tells, what it has read, and the places that it holds. One that is repeated tells nobody again, and gets the
/// places that it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRequest {
    pub cursor: Cursor,
    /// The users who became active here since the last turn, by minute.
    pub active: Vec<ActiveIn>,
    /// What it looks back over, in milliseconds: what is older is forgotten by all.
    pub window_ms: i64,
    /// How long it stays a member without another turn, in milliseconds; 0: it leaves.
    pub member_for_ms: i64,
    /// The places that it holds, used or not, whose users it has not told yet.
    pub held: u64,
    /// How many users have asked for a place lately.
    pub wanted: u64,
    /// The maximum, minus the users that this instance knows to be active: all instances together may hold no more places. `None`: it
    /// wants no more places, and sets no bound for others.
    pub room: Option<u64>,
}

/// Users who became active in a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveIn {
    pub minute: Minute,
    /// How many of them were not active before, as far as the instance knows that tells it.
    pub new: u64,
    pub users: Vec<ActivityHash>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncReply {
    /// What other instances told since the cursor, or this one before it was started anew.
    pub active: Vec<ActiveIn>,
    pub cursor: Cursor,
    /// There is more to read: take another turn at once. No places were added.
    pub more: bool,
    /// The log no longer has what the cursor stands for: it was lost, and is read from its beginning.
    pub lost: bool,
    /// The places that this instance holds from now on: never fewer than it held.
    pub held: u64,
    /// Its fair part of the room that it has told of; 0 where it has told of none.
    pub part: u64,
    /// The instances, this one included.
    pub members: u64,
    /// When the turn was, by the log's clock.
    pub now: Time,
    /// Bytes sent and received, about.
    pub bytes: u64,
}

#[cfg(test)]
mod tests;
