//! Numbers of channels, categories and campaigns: asked for once, and kept by each lane for a while.
//!
//! A number is used on all nodes, so it may not be lost with the one that holds the tables: it counts once a replica has it, where
//! there is one (`node.rs`). A table that lost numbers all the same is never used again as it is: after every reconnect a lane
//! compares the highest number that it knows with the table, which only ever grows. `weir rebuild` repairs it.

mod cache;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;
use weir_core::{
    history::Entry,
    intent::class::{Campaign, ClassNames, ClassNumbers, Kind, KindNames, KindTable, table_name},
};

pub(super) use self::table::NameTable;
use self::{
    cache::Cache,
    table::{MAX_NAMES_A_CALL, Told},
};
use super::{
    cluster::{Cluster, Routed},
    keyspace::Keyspace,
    node::{LinkId, Request},
    request_error::RequestError,
    stats::RetryCause,
};

/// Numbers of kinds that a lane remembers by name, and once more at most: far more than an installation uses. A kind is two names of
/// 256 bytes at most, so this is 4 MiB per lane when somebody invents them.
const KINDS_REMEMBERED: usize = 4_096;
/// The same of campaigns: three of the largest usual batches of campaigns that are all different, 16 MiB a lane at most.
const CAMPAIGNS_REMEMBERED: usize = 32_768;

#[derive(Clone, Default)]
pub(super) struct Names {
    /// The names of all kinds that have been read: filters are matched with them. There are 65,534 at most, so 40 MiB per lane when
    /// somebody fills the table with names of 256 bytes, and 10 MiB with names of 20.
    kinds: KindTable,
    numbers_of_kinds: Cache<KindNames, Kind, KINDS_REMEMBERED>,
    campaigns: Cache<Box<str>, Campaign, CAMPAIGNS_REMEMBERED>,
    campaign_names: Cache<Campaign, Box<str>, CAMPAIGNS_REMEMBERED>,
    /// The highest number of each table that was given to this lane, and its name.
    highest: [Option<(u32, Vec<u8>)>; 2],
    /// The connection over which they were compared with the tables.
    compared: Option<LinkId>,
}

impl Names {
    pub(super) fn kinds(&self) -> &KindTable {
        &self.kinds
    }

    /// The numbers of a class, where both are remembered.
    pub(super) fn numbers(&self, class: &ClassNames<'_>) -> Option<ClassNumbers> {
        let kind = self.kind(class)?;
        let campaign = match class.campaign {
            None => Campaign::NONE,
            Some(name) => *self.campaigns.get(table_name(name).as_ref())?,
        };
        Some((kind, campaign))
    }

    fn kind(&self, class: &ClassNames<'_>) -> Option<Kind> {
        if class.channel.is_none() && class.category.is_none() {
            return Some(Kind::NONE);
        }
        self.numbers_of_kinds.get(&kind_names(class)).copied()
    }

    /// The numbers of all these classes, in order; new names are given numbers. `None`, with the reason, for
    /// those whose numbers could not be had.
    pub(super) async fn resolve(
        &mut self,
        classes: &[ClassNames<'_>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> (Vec<Option<ClassNumbers>>, Option<RequestError>) {
        self.compare(cluster, keyspace).await;
        // A batch has few classes, so each is looked up once.
        let mut known: HashMap<ClassNames<'_>, Option<ClassNumbers>, RandomState> = HashMap::default();
        for class in classes {
            known.entry(*class).or_insert_with(|| self.numbers(class));
        }
        let unknown: Vec<ClassNames<'_>> =
            known.iter().filter(|(_, numbers)| numbers.is_none()).map(|(class, _)| *class).collect();
        let mut error = None;
        if !unknown.is_empty() {
            match self.learn(&unknown, cluster, keyspace).await {
                Ok(learnt) => known.extend(unknown.into_iter().zip(learnt.into_iter().map(Some))),
                Err(met) => error = Some(met),
            }
        }
        (classes.iter().map(|class| known.get(class).copied().flatten()).collect(), error)
    }

    /// Asks for the numbers of classes. They are given back and not looked up again: there may be more than are remembered.
    async fn learn(
        &mut self,
        classes: &[ClassNames<'_>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<Vec<ClassNumbers>, RequestError> {
        let kinds: BTreeSet<KindNames> =
            classes.iter().map(kind_names).filter(|names| *names != KindNames::default()).collect();
        let kinds: Vec<KindNames> = kinds.into_iter().collect();
        let fields: Vec<Vec<u8>> = kinds.iter().map(kind_field).collect();
        let given = self.intern(NameTable::Kinds, &fields, cluster, keyspace).await?;
        let mut kind_of = BTreeMap::new();
        for (names, number) in kinds.into_iter().zip(given) {
            let kind = u16::try_from(number).map_or(Kind::OVERFLOW, Kind);
            self.numbers_of_kinds.insert(names.clone(), kind);
            kind_of.insert(names, kind);
        }
        let campaigns: BTreeSet<String> =
            classes.iter().filter_map(|class| class.campaign).map(|name| table_name(name).into_owned()).collect();
        let campaigns: Vec<String> = campaigns.into_iter().collect();
        let fields: Vec<Vec<u8>> = campaigns.iter().map(|name| campaign_field(name)).collect();
        let given = self.intern(NameTable::Campaigns, &fields, cluster, keyspace).await?;
        let mut campaign_of = BTreeMap::new();
        for (name, number) in campaigns.into_iter().zip(given) {
            let campaign = Campaign(number).min(Campaign::OVERFLOW);
            self.campaigns.insert(name.as_str().into(), campaign);
            campaign_of.insert(name, campaign);
        }
        let numbers = |class: &ClassNames<'_>| {
            let kind = kind_of.get(&kind_names(class)).copied().unwrap_or(Kind::NONE);
            let campaign = class.campaign.and_then(|name| campaign_of.get(table_name(name).as_ref()).copied());
            (kind, campaign.unwrap_or(Campaign::NONE))
        };
        Ok(classes.iter().map(numbers).collect())
    }

    /// Gives numbers to fields of a table. The kinds that came since they were last read are read, too.
    async fn intern(
        &mut self,
        table: NameTable,
        fields: &[Vec<u8>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<Vec<u32>, RequestError> {
        let mut all = Vec::with_capacity(fields.len());
        for names in fields.chunks(MAX_NAMES_A_CALL) {
            let (_, numbers) = self.call(table, names, cluster, keyspace).await?;
            let given = numbers.iter().zip(names).filter(|(number, _)| **number <= table.limit());
            if let Some((number, name)) = given.max()
                && self.highest[table as usize].as_ref().is_none_or(|(highest, _)| highest < number)
            {
                self.highest[table as usize] = Some((*number, name.clone()));
            }
            all.extend(numbers);
        }
        if table == NameTable::Kinds && !fields.is_empty() {
            self.read_kinds(cluster, keyspace).await?;
        }
        Ok(all)
    }

    /// One call; gives the next number, and one for each name.
    async fn call(
        &mut self,
        table: NameTable,
        names: &[Vec<u8>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<(u32, Vec<u32>), RequestError> {
        let listed = (table == NameTable::Kinds).then_some(self.kinds.len());
        let request = table::request(table, keyspace, self.highest[table as usize].as_ref(), listed, names);
        let reply = cluster.ask(keyspace.meta_slot(), request).await;
        let Some(Told { next, numbers, listed }) = table::read(reply, table, names.len(), cluster)? else {
            return Err(self.contradicted(table, keyspace));
        };
        for field in listed {
            let names = field.map(|field| serde_json::from_slice(&field)).transpose();
            self.kinds.push(names.map_err(|_| cluster.torn("the names of kinds"))?);
        }
        Ok((next, numbers))
    }

    /// A table lost numbers that this lane was given: nothing is decided by what it knows until the table is repaired.
    fn contradicted(&mut self, table: NameTable, keyspace: &Keyspace) -> RequestError {
        let [key, _] = table.keys(keyspace);
        *self = Self { compared: self.compared, ..Self::default() };
        let message =
            format!("{key} has lost numbers that were given: its node lost writes, in a failover or a restart");
        tracing::error!("{message}; intents wait: repair it with weir rebuild");
        RequestError::lost(message)
    }

    /// Compares what is known with the tables, once a connection to their node: it may be another node, or have lost writes.
    /// While there is no answer what is known stays in use, so that one node's loss does not stop the others.
    async fn compare(&mut self, cluster: &mut Cluster, keyspace: &Keyspace) {
        let link = cluster.link(keyspace.meta_slot());
        if link.is_none() || link == self.compared {
            return;
        }
        for table in NameTable::ALL {
            let Some(highest) = &self.highest[table as usize] else { continue };
            let request = table::request(table, keyspace, Some(highest), None, &[]);
            let routed = Routed { slot: keyspace.meta_slot(), detour: None, request };
            let Some(reply) = cluster.round(vec![routed]).await.pop() else { return };
            match table::read(reply, table, 0, cluster) {
                // A table that is gone says nothing against what is known: it is repaired from what was decided by that.
                Ok(Some(_)) => {}
                Err(error) if error.cause == RetryCause::LostHistory => {}
                Ok(None) => drop(self.contradicted(table, keyspace)),
                Err(_) => return,
            }
        }
        self.compared = cluster.link(keyspace.meta_slot());
    }

    /// Reads the kinds that came since they were last read; nothing is read twice.
    pub(super) async fn read_kinds(&mut self, cluster: &mut Cluster, keyspace: &Keyspace) -> Result<(), RequestError> {
        loop {
            let before = self.kinds.len();
            let (next, _) = self.call(NameTable::Kinds, &[], cluster, keyspace).await?;
            let behind = usize::try_from(next).unwrap_or(usize::MAX) > self.kinds.len() + 1;
            if !behind || self.kinds.len() == before {
                return Ok(());
            }
        }
    }

    /// The names of the classes of these entries. Reads the kinds that are new, and asks for the names of campaigns that this lane
    /// does not remember: a few lookups, however many campaigns there are.
    pub(super) async fn name(
        &mut self,
        entries: &[Entry],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<ClassesOf, RequestError> {
        let numbers: BTreeSet<Kind> = entries.iter().map(|entry| entry.kind).collect();
        let named = |kind: &Kind| ![Kind::NONE, Kind::OVERFLOW].contains(kind);
        if numbers.iter().any(|kind| named(kind) && usize::from(kind.0) > self.kinds.len()) {
            self.read_kinds(cluster, keyspace).await?;
        }
        let names = |kind: Kind| Some((kind, self.kinds.names(kind)?.clone()));
        let kinds = numbers.into_iter().filter(named).filter_map(names).collect();
        let campaigns: BTreeSet<Campaign> = entries.iter().map(|entry| entry.campaign).collect();
        let campaigns: Vec<Campaign> =
            campaigns.into_iter().filter(|campaign| ![Campaign::NONE, Campaign::OVERFLOW].contains(campaign)).collect();
        Ok((kinds, self.campaign_names(&campaigns, cluster, keyspace).await?))
    }

    async fn campaign_names(
        &mut self,
        campaigns: &[Campaign],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<BTreeMap<Campaign, String>, RequestError> {
        let mut names = BTreeMap::new();
        let mut unknown = Vec::new();
        for campaign in campaigns {
            match self.campaign_names.get(campaign) {
                Some(name) => drop(names.insert(*campaign, name.to_string())),
                None => unknown.push(*campaign),
            }
        }
        let table = keyspace.campaign_names_key();
        let requests = unknown.chunks(MAX_NAMES_A_CALL).map(|numbers| {
            let numbers: Vec<u32> = numbers.iter().map(|campaign| campaign.0).collect();
            (keyspace.meta_slot(), Request::plain("HMGET", (table, numbers)))
        });
        let replies = cluster.ask_all(requests.collect()).await;
        for (numbers, reply) in unknown.chunks(MAX_NAMES_A_CALL).zip(replies) {
            let fields: Vec<Option<String>> = redis::from_redis_value(reply?).unwrap_or_default();
            for (campaign, field) in numbers.iter().zip(fields) {
                if let Some(name) = field.as_deref().and_then(|field| field.strip_prefix('=')) {
                    self.campaign_names.insert(*campaign, name.into());
                    names.insert(*campaign, name.to_owned());
                }
            }
        }
        if campaigns.iter().any(|campaign| !names.contains_key(campaign)) {
            // The number was lost; or all are, with the table: then this call says so.
            self.call(NameTable::Campaigns, &[], cluster, keyspace).await?;
        }
        Ok(names)
    }
}

/// The names that some entries' numbers stand for. A number that was lost with the node that held the tables has none.
pub(super) type ClassesOf = (BTreeMap<Kind, KindNames>, BTreeMap<Campaign, String>);

fn kind_names(class: &ClassNames<'_>) -> KindNames {
    let owned = |name: Option<&str>| name.map(|name| table_name(name).into_owned());
    (owned(class.channel), owned(class.category))
}

/// A kind's field in the table: `["push",null]`, which no two kinds share whatever their names hold.
pub(super) fn kind_field(names: &KindNames) -> Vec<u8> {
    serde_json::to_vec(names).unwrap_or_default()
}

/// A campaign's field in the table: `=` and the name, so that none is the table's own field.
pub(super) fn campaign_field(name: &str) -> Vec<u8> {
    format!("={name}").into_bytes()
}
