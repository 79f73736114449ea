//! Numbers of channels, categories and campaigns: asked for once, cached by each lane.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

use super::{cluster::Cluster, keyspace::Keyspace, node::Request, script::Script, trouble::Trouble};
use crate::domain::{
    class::{Campaign, ClassNames, ClassNumbers, Kind, KindNames, KindTable, table_name},
    history::Entry,
};

/// The most names that one call gives numbers to.
const MAX_NAMES_A_CALL: usize = 500;
/// The most campaigns that a lane remembers; then it forgets all and asks again.
const MAX_CAMPAIGNS_CACHED: usize = 100_000;

/// The numbers a lane knows.
#[derive(Default)]
pub(super) struct Names {
    kinds: KindTable,
    /// Key of [`kind_key`] -> kind.
    kinds_by_key: HashMap<Box<[u8]>, Kind, RandomState>,
    campaigns: HashMap<Box<str>, Campaign, RandomState>,
    campaign_names: HashMap<Campaign, Box<str>>,
}

impl Names {
    /// All kinds known.
    pub(super) fn kinds(&self) -> &KindTable {
        &self.kinds
    }

    /// The numbers of a class, where both are known.
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
        self.kinds_by_key.get(kind_key(class).as_slice()).copied()
    }

    /// The numbers of all these classes, in order; new names are given numbers. `None`, with the reason, for
    /// those whose numbers could not be had.
    pub(super) async fn resolve(
        &mut self,
        classes: &[ClassNames<'_>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> (Vec<Option<ClassNumbers>>, Option<Trouble>) {
        let known = self.numbers_of_all(classes);
        if known.iter().all(Option::is_some) {
            return (known, None);
        }
        if self.campaigns.len() > MAX_CAMPAIGNS_CACHED {
            self.campaigns.clear();
        }
        let trouble = self.learn(classes, cluster, keyspace).await.err();
        (self.numbers_of_all(classes), trouble)
    }

    /// The numbers of each class. A batch has few classes, so each is looked up once.
    fn numbers_of_all(&self, classes: &[ClassNames<'_>]) -> Vec<Option<ClassNumbers>> {
        let mut known: HashMap<ClassNames<'_>, Option<ClassNumbers>, RandomState> = HashMap::default();
        classes.iter().map(|class| *known.entry(*class).or_insert_with(|| self.numbers(class))).collect()
    }

    async fn learn(
        &mut self,
        classes: &[ClassNames<'_>],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<(), Trouble> {
        let mut kinds = BTreeSet::new();
        let mut campaigns = BTreeSet::new();
        for class in classes {
            if self.kind(class).is_none() {
                kinds.insert(kind_names(class));
            }
            if let Some(name) = class.campaign.map(table_name)
                && !self.campaigns.contains_key(name.as_ref())
            {
                campaigns.insert(name.into_owned());
            }
        }
        if !kinds.is_empty() {
            let fields = kinds.iter().map(kind_field).collect();
            let given = intern(cluster, keyspace, &[keyspace.kinds_key()], MAX_KIND, fields).await?;
            let full = given.iter().any(|number| *number > u64::from(MAX_KIND));
            self.reload(cluster, keyspace).await?;
            if full {
                for names in kinds {
                    let class =
                        ClassNames { channel: names.0.as_deref(), category: names.1.as_deref(), campaign: None };
                    self.kinds_by_key.entry(kind_key(&class).into()).or_insert(Kind::OVERFLOW);
                }
            }
        }
        let campaigns: Vec<String> = campaigns.into_iter().collect();
        let fields = campaigns.iter().map(|name| campaign_field(name)).collect();
        let tables = [keyspace.campaigns_key(), keyspace.campaign_names_key()];
        let given = intern(cluster, keyspace, &tables, MAX_CAMPAIGN, fields).await?;
        for (name, number) in campaigns.into_iter().zip(given) {
            let number = u32::try_from(number).map_or(Campaign::OVERFLOW, Campaign);
            self.campaigns.insert(name.into(), number.min(Campaign::OVERFLOW));
        }
        Ok(())
    }

    /// Reads the whole table of kinds again.
    pub(super) async fn reload(&mut self, cluster: &mut Cluster, keyspace: &Keyspace) -> Result<(), Trouble> {
        let mut command = redis::cmd("HGETALL");
        command.arg(keyspace.kinds_key());
        let reply = cluster.ask(keyspace.meta_slot(), Request::Plain(command)).await?;
        let torn = || Trouble::torn(&cluster.options().nodes[0], "the table of kinds");
        let fields: HashMap<Vec<u8>, Vec<u8>> = redis::from_redis_value(reply).map_err(|_| torn())?;
        let mut kinds: Vec<(u64, KindNames)> = Vec::with_capacity(fields.len());
        for (field, number) in &fields {
            if field != b"epoch" {
                let names = serde_json::from_slice(field).map_err(|_| torn())?;
                let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
                kinds.push((number.ok_or_else(torn)?, names));
            }
        }
        kinds.sort_unstable();
        if kinds.iter().zip(1..).any(|((number, _), expected)| *number != expected) {
            return Err(torn());
        }
        self.kinds = KindTable::new(kinds.into_iter().map(|(_, names)| names).collect());
        self.kinds_by_key.retain(|_, kind| *kind == Kind::OVERFLOW);
        for number in (1..).take(self.kinds.len()) {
            if let Some((channel, category)) = self.kinds.names(Kind(number)) {
                let class = ClassNames { channel: channel.as_deref(), category: category.as_deref(), campaign: None };
                self.kinds_by_key.insert(kind_key(&class).into(), Kind(number));
            }
        }
        Ok(())
    }
}

impl Names {
    /// The names of the classes of these entries. Reads the table of kinds again where it is behind, and asks for
    /// the names of campaigns that this lane does not know: a few lookups, however many campaigns there are.
    pub(super) async fn name(
        &mut self,
        entries: &[Entry],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<ClassesOf, Trouble> {
        let numbers: BTreeSet<Kind> = entries.iter().map(|entry| entry.kind).collect();
        let named = |kind: &Kind| ![Kind::NONE, Kind::OVERFLOW].contains(kind);
        if numbers.iter().any(|kind| named(kind) && self.kinds.names(*kind).is_none()) {
            self.reload(cluster, keyspace).await?;
        }
        let mut kinds = BTreeMap::new();
        for kind in numbers.into_iter().filter(named) {
            let names = self.kinds.names(kind).ok_or_else(|| unnamed(cluster, keyspace.kinds_key()))?;
            kinds.insert(kind, names.clone());
        }
        let campaigns: BTreeSet<Campaign> = entries.iter().map(|entry| entry.campaign).collect();
        let campaigns: Vec<Campaign> =
            campaigns.into_iter().filter(|campaign| ![Campaign::NONE, Campaign::OVERFLOW].contains(campaign)).collect();
        self.learn_campaigns(&campaigns, cluster, keyspace).await?;
        let name = |campaign: &Campaign| Some((*campaign, self.campaign_names.get(campaign)?.to_string()));
        Ok((kinds, campaigns.iter().filter_map(name).collect()))
    }

    /// Makes sure that the names of these campaigns are remembered.
    async fn learn_campaigns(
        &mut self,
        campaigns: &[Campaign],
        cluster: &mut Cluster,
        keyspace: &Keyspace,
    ) -> Result<(), Trouble> {
        if self.campaign_names.len() > MAX_CAMPAIGNS_CACHED {
            self.campaign_names.clear();
        }
        let unknown = campaigns.iter().filter(|campaign| !self.campaign_names.contains_key(campaign));
        let unknown: Vec<Campaign> = unknown.copied().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let table = keyspace.campaign_names_key();
        let requests = unknown.chunks(MAX_NAMES_A_CALL).map(|numbers| {
            let mut command = redis::cmd("HMGET");
            command.arg(table).arg(numbers.iter().map(|campaign| campaign.0).collect::<Vec<u32>>());
            (keyspace.meta_slot(), Request::Plain(command))
        });
        let replies = cluster.ask_all(requests.collect()).await;
        for (numbers, reply) in unknown.chunks(MAX_NAMES_A_CALL).zip(replies) {
            let fields: Vec<Option<String>> = redis::from_redis_value(reply?).unwrap_or_default();
            for (campaign, field) in numbers.iter().zip(fields.into_iter().chain(std::iter::repeat(None))) {
                let name = field.as_deref().and_then(|field| field.strip_prefix('='));
                let name = name.ok_or_else(|| unnamed(cluster, table))?;
                self.campaign_names.insert(*campaign, name.into());
            }
        }
        Ok(())
    }
}

/// The names that some entries' numbers stand for.
pub(super) type ClassesOf = (BTreeMap<Kind, KindNames>, BTreeMap<Campaign, String>);

/// Numbers are given and written before any history has them, so one without a name is of a table that was lost.
fn unnamed(cluster: &Cluster, table: &str) -> Trouble {
    let message = format!("a history has a number that {table} has no name for: the node that held it lost its data");
    Trouble::Refused { node: cluster.options().nodes[0].clone(), message }
}

/// The highest number a kind may have.
const MAX_KIND: u32 = Kind::OVERFLOW.0 as u32 - 1;
/// The highest number a campaign may have.
const MAX_CAMPAIGN: u32 = Campaign::OVERFLOW.0 - 1;

/// Gives numbers to fields of a table; `tables` is the table, and the one backwards where there is one.
async fn intern(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    tables: &[&str],
    limit: u32,
    fields: Vec<Vec<u8>>,
) -> Result<Vec<u64>, Trouble> {
    let mut numbers = Vec::with_capacity(fields.len());
    for names in fields.chunks(MAX_NAMES_A_CALL) {
        let mut args = vec![keyspace.epoch().as_bytes().to_vec(), limit.to_string().into_bytes()];
        args.extend_from_slice(names);
        let request = Request::Call {
            script: Script::Intern,
            keys: tables.iter().map(|&table| table.into()).collect(),
            args,
            latest: None,
        };
        let reply = cluster.ask(keyspace.meta_slot(), request).await?;
        let given: Vec<u64> = redis::from_redis_value(reply).unwrap_or_default();
        if given.len() != names.len() || given.iter().any(|number| *number == 0 || *number > u64::from(limit) + 1) {
            return Err(Trouble::torn(&cluster.options().nodes[0], "numbers for names"));
        }
        numbers.extend(given);
    }
    Ok(numbers)
}

fn kind_names(class: &ClassNames<'_>) -> KindNames {
    let owned = |name: Option<&str>| name.map(|name| table_name(name).into_owned());
    (owned(class.channel), owned(class.category))
}

/// A kind's field in the table: `["push",null]`, which no two kinds share whatever their names hold.
fn kind_field(names: &KindNames) -> Vec<u8> {
    serde_json::to_vec(names).unwrap_or_default()
}

/// A campaign's field in the table: `=` and the name, so that none is the table's own field.
fn campaign_field(name: &str) -> Vec<u8> {
    format!("={name}").into_bytes()
}

/// The same as bytes for the lane's own look-ups: presence, length and text of each name.
fn kind_key(class: &ClassNames<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    for name in [class.channel, class.category] {
        match name.map(table_name) {
            None => key.push(0),
            Some(name) => {
                key.push(1);
                key.extend_from_slice(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
                key.extend_from_slice(name.as_bytes());
            }
        }
    }
    key
}
