//! The topics with records of users.

use std::collections::BTreeSet;

use weir_core::deferral::wheel::Ring;

use super::settings::KafkaSettings;

impl KafkaSettings {
    /// The topics with records of users. A name that ends in `-*` stands for one topic per route.
    pub fn topics_of_users(&self) -> Vec<String> {
        let always = [&self.intents, &self.approved, &self.suppressed, &self.dead_letters];
        let optional = [&self.refunds, &self.activity, &self.delivery_reports, &self.retries, &self.undelivered];
        let wheels = self.deferred.iter().chain(&self.deferred_before);
        let wheels = wheels.flat_map(|prefix| Ring::ALL.map(|ring| ring.topic(prefix)));
        let topics = always.into_iter().chain(self.approved_by_channel.values()).chain(optional.into_iter().flatten());
        let mut topics: Vec<String> = topics.cloned().chain(wheels).collect();
        topics.extend(self.waiting.iter().map(|prefix| format!("{prefix}-*")));
        let mut seen = BTreeSet::new();
        topics.retain(|topic| seen.insert(topic.clone()));
        topics
    }
}
