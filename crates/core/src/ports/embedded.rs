//! The embedded store: histories in this process, decided by the reference. For `weir demo` and tests.

use std::collections::{BTreeSet, HashMap};

use crate::{
    basis::{locked::Locked, shard::UserHash, time::Time},
    history::{
        Entry, HistoryBounds,
        admit::{AdmitBatch, AdmitRequest, CapQuery},
        decide::{Answer, Cap, Send, decide, drop_oldest},
        deferred_send::{DeferredSend, PastSend},
        named::NamedHistory,
    },
    intent::class::{Campaign, ClassNames, Kind, KindTable, table_name},
    ports::{Histories, Store, StoreError},
};

/// Histories in memory, shared by all clones. A user's entries that are past the retention are dropped when the
/// user is next written to.
#[derive(Debug, Clone)]
pub struct EmbeddedStore {
    bounds: HistoryBounds,
    shared: Locked<SharedHistories>,
}

#[derive(Debug, Default)]
struct SharedHistories {
    histories: HashMap<UserHash, Vec<Entry>>,
    kinds: KindTable,
    campaigns: HashMap<String, Campaign>,
    /// The same backwards: number 1 first.
    campaign_names: Vec<String>,
}

impl EmbeddedStore {
    /// An empty store that remembers so much of a user.
    pub fn new(bounds: impl Into<HistoryBounds>) -> Self {
        Self { bounds: bounds.into(), shared: Locked::default() }
    }

    /// A user's history, ascending.
    pub fn history(&self, user: UserHash) -> Vec<Entry> {
        let shared = self.shared.lock();
        shared.histories.get(&user).cloned().unwrap_or_default()
    }

    /// Answers the requests that have no answer, each at its own time (`times`, one a request) in place of the batch's clock: for the
    /// replay of past intents.
    pub fn admit_each(&self, batch: &AdmitBatch<'_>, times: &[Time], answers: &mut [Option<Answer>]) {
        self.decide_all(batch, |place| times[place], answers);
    }

    pub fn remember(&self, sent: &PastSend<'_>) {
        let mut shared = self.shared.lock();
        let PastSend { user, id, origin, at, class, cost } = *sent;
        let (kind, campaign) = (shared.kind(&class), shared.campaign(class.campaign));
        let history = shared.histories.entry(user).or_default();
        let place = history.partition_point(|entry| entry.at <= at);
        history.insert(place, Entry { at, id, origin, kind, campaign, cost });
        drop_oldest(history, self.bounds.max_entries);
    }

    fn decide_all(&self, batch: &AdmitBatch<'_>, now: impl Fn(usize) -> Time, answers: &mut [Option<Answer>]) {
        let mut shared = self.shared.lock();
        let open =
            || batch.requests.iter().zip(0..).filter(|(_, place)| answers.get(*place).is_some_and(Option::is_none));
        let sends: Vec<(usize, Send)> = open().map(|(request, place)| (place, shared.send(request))).collect();
        let cap = |query: &CapQuery| query.counting(shared.kinds.matching(&query.filter));
        let sets: Vec<Vec<Cap>> = batch.cap_sets.iter().map(|caps| caps.iter().map(cap).collect()).collect();
        for (place, send) in sends {
            let request = &batch.requests[place];
            let history = shared.histories.entry(request.user).or_default();
            answers[place] = Some(decide(history, &send, &sets[request.cap_set], now(place), self.bounds));
        }
    }
}

impl SharedHistories {
    fn send(&mut self, request: &AdmitRequest<'_>) -> Send {
        request.send((self.kind(&request.class), self.campaign(request.class.campaign)))
    }

    fn kind(&mut self, class: &ClassNames<'_>) -> Kind {
        let owned = |name: Option<&str>| name.map(|name| table_name(name).into_owned());
        let names = (owned(class.channel), owned(class.category));
        self.kinds.number(&names).unwrap_or_else(|| self.kinds.push(Some(names)))
    }

    fn campaign(&mut self, name: Option<&str>) -> Campaign {
        let Some(name) = name.map(table_name) else { return Campaign::NONE };
        if let Some(known) = self.campaigns.get(name.as_ref()) {
            return *known;
        }
        let next = u32::try_from(self.campaigns.len() + 1).map_or(Campaign::OVERFLOW, Campaign).min(Campaign::OVERFLOW);
        if next < Campaign::OVERFLOW {
            self.campaign_names.push(name.clone().into_owned());
            self.campaigns.insert(name.into_owned(), next);
        }
        next
    }
}

impl Histories for EmbeddedStore {
    async fn history_of(&mut self, user: UserHash) -> Result<NamedHistory, StoreError> {
        let shared = self.shared.lock();
        let entries = shared.histories.get(&user).cloned().unwrap_or_default();
        let campaign = |campaign: Campaign| {
            let place = usize::try_from(campaign.0).ok()?.checked_sub(1)?;
            shared.campaign_names.get(place).cloned()
        };
        Ok(NamedHistory::new(entries, &shared.kinds, campaign, self.bounds.retention_ms))
    }

    async fn forget(&mut self, user: UserHash) -> Result<u64, StoreError> {
        let mut shared = self.shared.lock();
        Ok(shared.histories.remove(&user).map_or(0, |history| history.len() as u64))
    }
}

impl Store for EmbeddedStore {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        self.decide_all(batch, |_| batch.now, answers);
        Ok(())
    }

    fn shards(&self) -> u16 {
        1
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        // It is never away.
        away.iter().copied().collect()
    }

    async fn record(&mut self, sends: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        for send in sends {
            if !self.history(send.user).iter().any(|entry| (entry.id, entry.at) == (send.id, send.at)) {
                self.remember(&send.past());
            }
        }
        Ok(())
    }
}
