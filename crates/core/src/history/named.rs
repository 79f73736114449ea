//! A user's history with the names that its numbers stand for: what `explain` and a dry run are made from.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::Entry,
    intent::class::{Campaign, Filter, Kind, KindNames, KindTable, table_name},
};

/// One user's history and the names in it, as a store gives them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedHistory {
    /// The entries as they lie in the store, ascending by time; some may be older than the retention.
    pub entries: Vec<Entry>,
    /// Channel and category of each kind in it, but for [`Kind::NONE`], [`Kind::OVERFLOW`] and numbers whose names were lost.
    pub kinds: BTreeMap<Kind, KindNames>,
    /// The name of each campaign in it, with the same exceptions.
    pub campaigns: BTreeMap<Campaign, String>,
    /// How long the store remembers a send, in milliseconds.
    pub retention_ms: i64,
}

impl NamedHistory {
    /// A history whose numbers are those of a table, and of what gives the names of campaigns.
    pub fn new(
        entries: Vec<Entry>,
        kinds: &KindTable,
        campaign: impl Fn(Campaign) -> Option<String>,
        retention_ms: i64,
    ) -> Self {
        let of_kind = |entry: &Entry| Some((entry.kind, kinds.names(entry.kind)?.clone()));
        let of_campaign = |entry: &Entry| Some((entry.campaign, campaign(entry.campaign)?));
        Self {
            kinds: entries.iter().filter_map(of_kind).collect(),
            campaigns: entries.iter().filter_map(of_campaign).collect(),
            entries,
            retention_ms,
        }
    }

    /// The channel of a kind; `None` where none was given, or the table of kinds was full.
    pub fn channel(&self, kind: Kind) -> Option<&str> {
        self.kinds.get(&kind)?.0.as_deref()
    }

    /// The category of a kind; `None` where none was given, or the table of kinds was full.
    pub fn category(&self, kind: Kind) -> Option<&str> {
        self.kinds.get(&kind)?.1.as_deref()
    }

    /// The name of a campaign; `None` where none was given, or the table of campaigns was full.
    pub fn campaign(&self, campaign: Campaign) -> Option<&str> {
        self.campaigns.get(&campaign).map(String::as_str)
    }

    /// The number by which this history knows a campaign; for one that is not in it, a number that is not either.
    pub fn campaign_number(&self, name: Option<&str>) -> Campaign {
        let Some(name) = name.map(table_name) else { return Campaign::NONE };
        let known = self.campaigns.iter().find(|(_, known)| **known == name).map(|(number, _)| *number);
        known.unwrap_or_else(|| self.unknown_campaign())
    }

    /// The number of a campaign that was never sent to this user.
    pub fn unknown_campaign(&self) -> Campaign {
        let known: BTreeSet<Campaign> = self.entries.iter().map(|entry| entry.campaign).collect();
        (1..).map(Campaign).find(|number| !known.contains(number)).unwrap_or(Campaign::OVERFLOW)
    }

    /// The kinds in it that a filter speaks of, as [`crate::intent::class::KindTable::matching`] has them for all kinds.
    pub fn matching(&self, filter: &Filter) -> Option<BTreeSet<Kind>> {
        if filter.is_everything() {
            return None;
        }
        let matches =
            |(_, (channel, category)): &(&Kind, &KindNames)| filter.matches(channel.as_deref(), category.as_deref());
        let kinds = self.kinds.iter().filter(matches).map(|(kind, _)| *kind);
        // A number without a name was lost with the node that held the names: it matches every filter.
        let nameless = self.entries.iter().map(|entry| entry.kind);
        let nameless = nameless.filter(|kind| *kind != Kind::NONE && !self.kinds.contains_key(kind));
        Some(kinds.chain(nameless).chain([Kind::OVERFLOW]).collect())
    }
}
