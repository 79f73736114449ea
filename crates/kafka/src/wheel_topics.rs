//! The topics of a wheel: how its lanes read them, how many partitions they have, and whether they keep deferred intents for as long as they must.

use std::time::Duration;

use weir_core::deferral::wheel::{KEPT_BEYOND_MS, LONGEST_MS, Ring, Wheel};

use super::{
    client::{KafkaOptions, PARTITION_FETCH_BYTES, ReadOrder, Reads, WheelTopics},
    group_progress::GroupProgress,
    rights::Right,
    topic_settings::{self, KeepsTooLittle, TopicSettings},
    topics::{self, Partitions, TopicError},
};

/// How long topics that are made here keep a record, in milliseconds: as long as the longest deferral needs.
pub(super) const RETENTION_MS: i64 = LONGEST_MS + KEPT_BEYOND_MS;

impl KafkaOptions {
    /// All wheels: the one that intents are deferred to, then those before it.
    pub fn wheels(&self) -> impl Iterator<Item = &WheelTopics> {
        self.deferred.iter().chain(&self.deferred_before)
    }

    /// The group that reads deferred intents.
    pub fn later_group(&self) -> String {
        format!("{}-later", self.group)
    }

    /// The options of a lane that reads this ring of a wheel in place of the intents, in a group of its own.
    pub fn for_ring(&self, wheel: &WheelTopics, ring: Ring) -> Self {
        let mut options = self.clone().reading_all();
        options.intents = wheel.topic(ring).to_owned();
        options.group = self.later_group();
        options.reads = Reads::Deferred;
        // What is due may be decided within a minute: brokers gather for longer, and answer for empty buckets less often.
        options.commit_interval = Duration::from_secs(1);
        if ring == Ring::Hours {
            // They go on in the same wheel.
            options.deferred = Some(wheel.clone());
        }
        options
    }

    /// Whether what is read is a ring of a wheel: of its partitions few have something at a time.
    fn is_ring(&self) -> bool {
        self.reads == Reads::Deferred && self.read_order == ReadOrder::AsFetched
    }

    /// How the group shares partitions out. The shares of a bucket are adjacent partitions: by ranges one lane would have all
    /// of them, and all minutes of an hour. Members from before that know ranges alone can still join, so `range` stays in the list.
    pub(super) fn assignment(&self) -> &'static str {
        if self.is_ring() { "roundrobin,range" } else { "range" }
    }

    /// What a broker gives of one partition at a time, at most. A lane empties one bucket at a time, which is one partition
    /// where it has one share: then an answer is of that one alone.
    pub(super) fn partition_fetch_bytes(&self) -> u64 {
        if self.is_ring() { self.memory.fetch_bytes } else { self.memory.fetch_bytes.min(PARTITION_FETCH_BYTES) }
    }
}

/// The wheel that these topics make.
pub fn wheel(topics: &WheelTopics, found: &Partitions) -> Result<Wheel, TopicError> {
    let shares = |ring: Ring| {
        let topic = topics.topic(ring).to_owned();
        let partitions = found.get(&topic).copied().unwrap_or(0);
        ring.shares(partitions).ok_or(TopicError::Partitions { topic, partitions, buckets: ring.buckets() })
    };
    let (hours, minutes) = (shares(Ring::Hours)?, shares(Ring::Minutes)?);
    if hours == minutes {
        return Ok(Wheel { shares: hours });
    }
    Err(TopicError::Shares {
        hours: topics.topic(Ring::Hours).to_owned(),
        minutes: topics.topic(Ring::Minutes).to_owned(),
        shares: [hours, minutes],
    })
}

/// How many partitions a topic of a wheel has that is made with so many shares; `None` for any other topic.
pub(super) fn partitions(options: &KafkaOptions, topic: &str, shares: u16) -> Option<i32> {
    let ring = Ring::ALL.into_iter().find(|ring| options.wheels().any(|wheel| wheel.topic(*ring) == topic))?;
    i32::try_from(ring.buckets() * i64::from(shares)).ok()
}

/// The settings by which a topic may lose an intent that is deferred for `max_ms` at most.
pub fn keeps_too_little(settings: &TopicSettings, max_ms: i64) -> Vec<KeepsTooLittle> {
    let required_ms = max_ms.saturating_add(KEPT_BEYOND_MS);
    settings.keeps_too_little(required_ms, "deferred intents may be deleted before they are decided")
}

/// Whether deferred intents wait in a wheel that no setting names any more: its group has read the topics, and nothing does now.
/// Blocks.
pub fn none_left_behind(options: &KafkaOptions) -> Result<(), TopicError> {
    let named: Vec<&str> = options.wheels().flat_map(|wheel| Ring::ALL.map(|ring| wheel.topic(ring))).collect();
    let is_ring = |(topic, partitions): &(String, usize)| {
        let has_its_shape = |ring: Ring| topic.ends_with(&ring.topic("")) && ring.shares(*partitions).is_some();
        !named.contains(&topic.as_str()) && Ring::ALL.into_iter().any(has_its_shape)
    };
    let candidates: Partitions = topics::visible(options)?.into_iter().filter(is_ring).collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let progress = GroupProgress::new(options, options.later_group())?;
    let (mut left, mut intents) = (Vec::new(), 0);
    for topic in candidates.into_keys() {
        let waiting = match progress.left(&topic) {
            Ok(waiting) => waiting,
            // Who may not ask for the group's offsets has read nothing as that group. It takes as long as an answer may.
            Err(TopicError::NotAllowed { rights, .. }) if rights.iter().any(Right::is_of_a_group) => break,
            // It may be deleted meanwhile.
            Err(TopicError::NotAllowed { .. } | TopicError::Missing { .. }) => 0,
            Err(error) => return Err(error),
        };
        if waiting > 0 {
            intents += waiting;
            left.push(topic);
        }
    }
    if left.is_empty() { Ok(()) } else { Err(TopicError::LeftBehind { topics: left, intents }) }
}

/// Asks for the settings of a wheel's topics, and whether they keep what is deferred for `max_ms` at most.
pub async fn verify(options: &KafkaOptions, topics: &WheelTopics, max_ms: i64) -> Result<(), TopicError> {
    let names = Ring::ALL.map(|ring| topics.topic(ring));
    topic_settings::verify(options, &names, |settings| keeps_too_little(settings, max_ms)).await
}
