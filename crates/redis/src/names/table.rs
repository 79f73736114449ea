//! The tables of names in Redis: one call of `lua/intern.lua`.

use redis::Value;
use weir_core::intent::class::{Campaign, Kind};

use crate::{
    cluster::Cluster,
    keyspace::Keyspace,
    node::{Reply, Request},
    request_error::RequestError,
    script::Script,
};

pub(super) const MAX_NAMES_A_CALL: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameTable {
    Kinds,
    Campaigns,
}

impl NameTable {
    pub(crate) const ALL: [Self; 2] = [Self::Kinds, Self::Campaigns];

    /// The highest number that may be given.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::Kinds => Kind::OVERFLOW.0 as u32 - 1,
            Self::Campaigns => Campaign::OVERFLOW.0 - 1,
        }
    }

    /// How many numbers are skipped where another server gave the last one, which may have lost some. New names are rare: this is
    /// far more than come between two snapshots of a server that is watched, and the numbers last for 4,000 restarts and more.
    const fn skipped(self) -> u32 {
        match self {
            Self::Kinds => 16,
            Self::Campaigns => 1024,
        }
    }

    /// Its key, and the key of the same backwards.
    pub(crate) fn keys(self, keyspace: &Keyspace) -> [&str; 2] {
        match self {
            Self::Kinds => [keyspace.kinds_key(), keyspace.kind_names_key()],
            Self::Campaigns => [keyspace.campaigns_key(), keyspace.campaign_names_key()],
        }
    }
}

pub(super) struct Told {
    /// The next number to be given.
    pub(super) next: u32,
    /// One for each name; above the limit where the table is full.
    pub(super) numbers: Vec<u32>,
    pub(super) listed: Vec<Option<Vec<u8>>>,
}

/// Compares the highest number that is known here, and its name, lists names from the number behind `listed` on, and has numbers given to
/// names, [`MAX_NAMES_A_CALL`] at most.
pub(super) fn request(
    table: NameTable,
    keyspace: &Keyspace,
    highest: Option<&(u32, Vec<u8>)>,
    listed: Option<usize>,
    names: &[Vec<u8>],
) -> Request {
    let nothing = (0, Vec::new());
    let (number, name) = highest.unwrap_or(&nothing);
    let listed = listed.map_or_else(|| "-1".to_owned(), |listed| listed.to_string());
    let mut args = vec![keyspace.epoch().as_bytes().to_vec()];
    args.extend([table.limit(), table.skipped(), *number].map(|number| number.to_string().into_bytes()));
    args.extend([name.clone(), listed.into_bytes()]);
    args.extend_from_slice(names);
    Request::call(Script::Intern, table.keys(keyspace).map(str::to_owned).into(), args)
}

/// What a reply tells; `None` where the highest number that is known here has another name in the table, or none.
pub(super) fn read(
    reply: Reply,
    table: NameTable,
    names: usize,
    cluster: &Cluster,
) -> Result<Option<Told>, RequestError> {
    let torn = || cluster.torn("numbers for names");
    let value: Value = reply?;
    // The last part is for the node (`node.rs`).
    let (next, numbers, listed, _): (u32, Vec<u32>, Vec<Option<Vec<u8>>>, u32) =
        redis::from_redis_value(value).map_err(|_| torn())?;
    if next == 0 {
        return Ok(None);
    }
    if numbers.len() != names || numbers.iter().any(|number| *number == 0 || *number > table.limit() + 1) {
        return Err(torn());
    }
    Ok(Some(Told { next, numbers, listed }))
}
