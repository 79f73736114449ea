//! A keyspace: what its keys are called, and what its meta key says of it.

use std::collections::HashMap;

use weir_core::{
    basis::{
        shard::{Layout, SLOTS, shard_of_name, shard_tags, slot_of_shard},
        time::Time,
    },
    limit::{budget::BudgetId, share::PlainLimit},
};

use super::{open::KeyspaceSeed, options::RedisOptions};

/// The format of keys and entries that this version reads and writes.
pub const FORMAT: &str = "weir/5";

/// The meta key's field of [`Lengthening`]; empty or absent where there is none.
pub(super) const LENGTHENING: &str = "lengthening";

/// One keyspace, as every lane needs it; made by [`super::open`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    meta: Meta,
    /// `<prefix>:{<tag>}:` of each shard.
    stems: Vec<String>,
    meta_slot: u16,
    tables: Tables,
}

/// What a keyspace is, fixed when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub layout: Layout,
    /// Names this keyspace, differently from all others.
    pub epoch: String,
    /// How long sends are remembered, in milliseconds.
    pub history_ms: i64,
    pub created_at: Time,
    /// Its history was shorter, and what is older is not all there yet.
    pub lengthening: Option<Lengthening>,
}

/// A history that is being made longer: it was shorter, and what is older than that is not all there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengthening {
    /// How long sends were remembered before, in milliseconds: all of these are there.
    pub from_ms: i64,
    /// The epoch before; empty where every shard has had a later one.
    pub epoch_before: String,
}

impl Lengthening {
    /// Whether a shard with this epoch has its history, and is to be given the new epoch.
    pub(super) fn is_before(&self, epoch: Option<&str>) -> bool {
        epoch.is_some_and(|epoch| !epoch.is_empty() && epoch == self.epoch_before)
    }

    fn to_text(&self) -> String {
        format!("{} {}", self.from_ms, self.epoch_before)
    }

    fn of_text(text: &str) -> Option<Self> {
        let (from_ms, epoch_before) = text.split_once(' ')?;
        Some(Self { from_ms: from_ms.parse().ok()?, epoch_before: epoch_before.to_owned() })
    }
}

/// Whether all of a keyspace is there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its shards are still being given their epoch; nobody uses it.
    Creating,
    Ready,
}

/// What a shard has to hold for a call to be carried out there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Guard<'g> {
    /// This epoch: the keyspace's, or the mark of a rebuild.
    Epoch(&'g str),
    LastRun(&'g str),
}

impl<'g> Guard<'g> {
    pub(super) fn key(self, keyspace: &Keyspace, shard: u16) -> String {
        match self {
            Self::Epoch(_) => keyspace.epoch_key(shard),
            Self::LastRun(_) => keyspace.last_run_key(shard),
        }
    }

    pub(super) const fn text(self) -> &'g str {
        match self {
            Self::Epoch(text) | Self::LastRun(text) => text,
        }
    }
}

/// A line for each key that has no other name in it: what it is called here, and in Redis. First those of the keyspace, then those of each
/// shard.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident => $name:literal,)+; $($(#[$of_shard:meta])* $shard_key:ident => $end:literal,)+) => {
        /// The keys of a keyspace beside those of its shards.
        #[derive(Debug, Clone, PartialEq, Eq)]
        struct Tables {
            $($key: String,)+
        }

        impl Tables {
            fn new(prefix: &str) -> Self {
                Self { $($key: format!("{prefix}:{{{prefix}}}:{}", $name),)+ }
            }
        }

        impl Keyspace {
            $($(#[$doc])*
            pub fn $key(&self) -> &str {
                &self.tables.$key
            })+

            $($(#[$of_shard])*
            pub fn $shard_key(&self, shard: u16) -> String {
                format!("{}{}", self.stem(shard), $end)
            })+
        }
    };
}

keys! {
    /// Where [`Meta`] lies, a hash.
    meta_key => "meta",
    /// The table of kinds, a hash: JSON `[channel, category]` -> number.
    kinds_key => "kinds",
    /// The table of kinds backwards, a hash: number -> JSON `[channel, category]`.
    kind_names_key => "kind-names",
    /// The table of campaigns, a hash: `=name` -> number; and the fields of `lua/intern.lua`.
    campaigns_key => "campaigns",
    /// The table of campaigns backwards, a hash: number -> `=name`.
    campaign_names_key => "campaign-names",
    /// The table of what groups have committed, a hash: JSON `[group, topic, topic id, partition]` -> the offset first noted.
    commits_key => "commits",
    /// The log of activity, a stream (`lua/sync.lua`).
    activity_key => "activity",
    /// The instances that share places, a hash (`lua/sync.lua`).
    activity_members_key => "activity-members",
    /// Where a rebuild keeps how far it is, a hash.
    rebuild_key => "rebuild",
    /// Held by the rebuild that is running.
    rebuild_lock_key => "rebuilding",
    ;
    /// The key of a shard's epoch.
    epoch_key => "e",
    /// The key of a shard's marks: how far each partition of the refunds is taken.
    marks_key => "r",
    /// A shard's unknown campaigns, a hash (`lua/take.lua`).
    unknown_key => "unknown",
    /// The register of a shard's totals of campaigns, a hash (`lua/take.lua`).
    totals_key => "totals",
    /// The marks of a shard's totals of campaigns that are gone, a text (`lua/make_room.lua`).
    gone_totals_key => "gone",
    /// The key of a shard's last rebuild: the run that marked it last, or that puts older sends into it.
    last_run_key => "run",
}

/// How long a key of users lives after it was renewed, in milliseconds: for two blocks of the history and a day more, for clocks of
/// workers that differ (`lua/admit/write.lua`).
pub(super) const fn key_lives_ms(history_ms: i64) -> i64 {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    history_ms.saturating_mul(2).saturating_add(DAY_MS)
}

impl Keyspace {
    /// What these options would create.
    pub(super) fn from_seed(options: &RedisOptions, seed: KeyspaceSeed) -> Self {
        let layout = Layout::for_users(options.shards, options.users);
        Self::new(&options.prefix, Meta::from_seed(layout, options.history_ms, seed))
    }

    pub(super) fn new(prefix: &str, meta: Meta) -> Self {
        let stems = shard_tags(meta.layout.shards).iter().map(|tag| format!("{prefix}:{{{tag}}}:")).collect();
        let meta_slot = crc16::State::<crc16::XMODEM>::calculate(prefix.as_bytes()) % SLOTS;
        Self { meta, stems, meta_slot, tables: Tables::new(prefix) }
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    pub fn epoch(&self) -> &str {
        &self.meta.epoch
    }

    pub fn slot(&self, shard: u16) -> u16 {
        slot_of_shard(shard, self.meta.layout.shards)
    }

    /// The slot of the tables and the log of activity.
    pub fn meta_slot(&self) -> u16 {
        self.meta_slot
    }

    /// The key of some users' histories.
    pub fn bucket_key(&self, shard: u16, bucket: u32) -> String {
        format!("{}{bucket}", self.stem(shard))
    }

    /// The shard of what a limit keeps by a name.
    pub fn limit_shard(&self, name: &str) -> u16 {
        shard_of_name(name, self.meta.layout.shards)
    }

    /// The key in a shard of what a limit keeps by a name. The kinds are `b` of budgets, `p` of routes, and words with a colon behind them:
    /// so it is none of the shard's own keys.
    pub fn limit_key(&self, shard: u16, (kind, name): (&str, &str)) -> String {
        format!("{}{kind}{name}", self.stem(shard))
    }

    pub fn budget_shard(&self, budget: &BudgetId) -> u16 {
        budget.shard(self.meta.layout.shards)
    }

    /// The key of a budget, a hash (`lua/take.lua`).
    pub fn budget_key(&self, budget: &BudgetId) -> String {
        self.limit_key(self.budget_shard(budget), ("b", &budget.key_name()))
    }

    /// The registry of a service, a hash (`lua/services/registry.lua`).
    pub fn service_key(&self, service: &str) -> String {
        self.limit_key(self.limit_shard(service), ("service:", service))
    }

    /// The slot and the keys of a limit that says by itself what they are called.
    pub fn place_of<L: PlainLimit>(&self, key: &L::Key) -> (u16, Vec<String>) {
        let (name, keys) = L::keys(key);
        let shard = self.limit_shard(name);
        (self.slot(shard), keys.into_iter().map(|key| self.limit_key(shard, key)).collect())
    }

    fn stem(&self, shard: u16) -> &str {
        self.stems.get(usize::from(shard)).map_or("", String::as_str)
    }
}

impl Meta {
    /// A new keyspace. Its epoch, which every shard carries, tells all that the meta key does: the node that holds that may be lost.
    pub(super) fn from_seed(layout: Layout, history_ms: i64, keyspace_seed: KeyspaceSeed) -> Self {
        let (Layout { shards, buckets, .. }, created_at) = (layout, keyspace_seed.now);
        // A mark puts colons around epochs.
        let random = keyspace_seed.epoch.replace(':', "-");
        let epoch = format!("{random}.{shards}.{buckets}.{history_ms}.{}", created_at.millis());
        Self { layout, epoch, history_ms, created_at, lengthening: None }
    }

    pub(super) fn of_epoch(epoch: &str) -> Option<Self> {
        let mut parts = epoch.rsplitn(5, '.');
        let created_at = Time::from_millis(parts.next()?.parse().ok()?)?;
        let history_ms = parts.next()?.parse().ok()?;
        let (buckets, shards) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next()?;
        let possible = (1..=SLOTS).contains(&shards) && buckets > 0;
        let (layout, epoch) = (Layout::new(shards, buckets), epoch.to_owned());
        possible.then_some(Self { layout, epoch, history_ms, created_at, lengthening: None })
    }

    /// The same keyspace under another epoch; `random` is text that no other keyspace has.
    pub(super) fn renamed(&self, random: &str) -> Self {
        let keyspace_seed =
            KeyspaceSeed { epoch: random.split('.').next().unwrap_or_default().to_owned(), now: self.created_at };
        // All shards have the present epoch.
        let renamed = |before: &Lengthening| Lengthening { from_ms: before.from_ms, epoch_before: String::new() };
        let lengthening = self.lengthening.as_ref().map(renamed);
        Self { lengthening, ..Self::from_seed(self.layout, self.history_ms, keyspace_seed) }
    }

    /// The same keyspace with a longer history, under another epoch.
    pub(super) fn lengthened(&self, random: &str, history_ms: i64) -> Self {
        let lengthening = Lengthening { from_ms: self.complete_ms(), epoch_before: self.epoch.clone() };
        Self { lengthening: Some(lengthening), ..Self { history_ms, ..self.clone() }.renamed(random) }
    }

    /// For how long back all sends are there, in milliseconds.
    pub fn complete_ms(&self) -> i64 {
        self.lengthening.as_ref().map_or(self.history_ms, |lengthening| lengthening.from_ms)
    }

    pub(super) fn to_fields(&self, state: State) -> Vec<(&'static str, String)> {
        vec![
            ("format", FORMAT.to_owned()),
            ("epoch", self.epoch.clone()),
            ("state", state.text().to_owned()),
            (LENGTHENING, self.lengthening.as_ref().map_or_else(String::new, Lengthening::to_text)),
        ]
    }

    /// Reads the fields of the meta key.
    pub(super) fn of_fields(fields: &HashMap<String, String>) -> Result<(Self, State), String> {
        let field = |name: &str| fields.get(name).map(String::as_str).ok_or_else(|| format!("it has no field {name}"));
        let format = field("format")?;
        if format != FORMAT {
            return Err(format!("its format is {format:?} and this weir knows {FORMAT:?}"));
        }
        let epoch = field("epoch")?;
        let meta = Self::of_epoch(epoch).ok_or_else(|| format!("its field epoch is {epoch:?}"))?;
        let lengthening = match fields.get(LENGTHENING).map_or("", String::as_str) {
            "" => None,
            text => Some(Lengthening::of_text(text).ok_or_else(|| format!("its field {LENGTHENING} is {text:?}"))?),
        };
        let state = match field("state")? {
            "creating" => State::Creating,
            "ready" => State::Ready,
            other => return Err(format!("its field state is {other:?}")),
        };
        Ok((Self { lengthening, ..meta }, state))
    }
}

impl State {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
        }
    }
}
