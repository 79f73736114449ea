//! Settings of the Kafka clients.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel, error::KafkaError, types::RDKafkaConfRes};
use weir_core::{
    basis::{
        memory::{LARGEST_OUTPUT_BYTES, LaneMemory},
        time::Time,
    },
    batch::{
        record::{ApprovedByChannel, ApprovedTopic, Destination},
        sizes::OutputLimits,
    },
    deferral::wheel::{Bucket, Ring},
    limit::route::routes::Routes,
};

pub use weir_core::ports::TRANSACTION_TIMEOUT;

use super::{properties::real_name, property_files::PropertyFiles, sizes, tokens};

/// How a batch becomes visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Records and offsets in one transaction.
    ExactlyOnce,
    /// Records first, then the offsets.
    AtLeastOnce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Published,
    /// What weir has deferred: it trusts the last headers.
    Deferred,
    /// What anybody publishes, of which older records have no effect: where no offset is committed, reading starts at this time.
    Since(Time),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOrder {
    AsFetched,
    /// By turns, so that a full partition does not hold up the others.
    ByTurns,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelTopics {
    pub prefix: String,
    hours: String,
    minutes: String,
}

impl WheelTopics {
    pub fn of(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), hours: Ring::Hours.topic(prefix), minutes: Ring::Minutes.topic(prefix) }
    }

    pub fn topic(&self, ring: Ring) -> &str {
        match ring {
            Ring::Hours => &self.hours,
            Ring::Minutes => &self.minutes,
        }
    }
}

/// Where a partition starts whose committed offset is not there, or not readable any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    Earliest,
    Latest,
    Refuse,
}

#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// `host:port,host:port`.
    pub brokers: String,
    pub group: String,
    pub intents: String,
    pub approved: String,
    pub approved_by_channel: BTreeMap<String, String>,
    pub suppressed: String,
    pub dead_letters: String,
    pub refunds: Option<String>,
    pub activity: Option<String>,
    pub delivery_reports: Option<String>,
    /// The topic of approved records whose delivery failed, where there is one.
    pub retries: Option<String>,
    /// The topic for approved records whose delivery is not retried any more, if configured.
    pub undelivered: Option<String>,
    pub deferred: Option<WheelTopics>,
    /// Topics that intents were deferred to before, until they are empty.
    pub deferred_before: Vec<WheelTopics>,
    /// What the topics of intents that wait for capacity begin with, where intents may wait.
    pub waiting: Option<String>,
    /// The routes whose waiting intents are written, by their numbers.
    pub routes: Arc<Routes>,
    pub reads: Reads,
    pub read_order: ReadOrder,
    pub delivery: Delivery,
    /// This instance's name, the stable part of its transactional ids.
    pub instance: String,
    /// Where clients get tokens from, if they sign in with tokens instead of a password.
    pub tokens: Option<Arc<dyn tokens::Tokens>>,
    /// Settings handed to librdkafka as they are, over ours.
    pub properties: BTreeMap<String, String>,
    pub files: Arc<PropertyFiles>,
    pub memory: LaneMemory,
    /// Records without headers that are handed to the client in one call, at most; see [`RECORDS_A_CALL`].
    pub records_a_call: usize,
    /// How long it may take from the read of a record to its commit: the brokers gather records for a part of it.
    pub commit_interval: Duration,
    pub limits: Arc<OutputLimits>,
}

/// What commits are apart unless settings say otherwise; the default of `worker.commit_interval`.
pub const COMMIT_INTERVAL: Duration = Duration::from_millis(50);

/// What a call for many records is given, at most: beyond it a call costs nothing against its records.
pub const RECORDS_A_CALL: usize = 1_024;

/// How old a consumer's picture of the topic may be. librdkafka's 5 minutes are how long partitions that were added, or
/// that were not there while brokers were in trouble, would be read by nobody.
const METADATA_REFRESH_MS: &str = "10000";
/// A broker that has less than this waits a moment for more, in bytes. Else it answers for each record that is published,
/// and answers cost worker and brokers more than what is in them.
const GATHERED_BYTES: u64 = 65_536;
const LONGEST_GATHERING: Duration = Duration::from_millis(100);
/// What a broker gives of one partition at a time, at most, in bytes: half of librdkafka's own default, so that a batch is of
/// more partitions, where a lane has more, and the outputs for each rather fit into one request (see [`KafkaOptions::round`]).
/// Not of a wheel's: there a lane reads one or a few.
pub(super) const PARTITION_FETCH_BYTES: u64 = 524_288;

/// How long a partition rests after an error, in milliseconds: a record batch that is not inflated is passed over record by record,
/// each with such an error.
const FETCH_BACKOFF_MS: &str = "50";

impl KafkaOptions {
    pub fn outputs(&self) -> Vec<(Destination, &str)> {
        let approved = self.approved_topics().into_iter().zip(0..);
        let approved = approved.map(|(topic, number)| (Destination::Approved(ApprovedTopic(number)), topic));
        let decided = [(Destination::Suppressed, &*self.suppressed), (Destination::DeadLetters, &*self.dead_letters)];
        let any = |ring| Destination::Deferred(Bucket { ring, partition: 0 });
        let deferred = self.deferred.iter().flat_map(|wheel| Ring::ALL.map(|ring| (any(ring), wheel.topic(ring))));
        let undelivered = self.undelivered.as_deref().map(|topic| (Destination::Undelivered, topic));
        approved.chain(decided).chain(deferred).chain(undelivered).collect()
    }

    /// All approved topics: the one of all other channels, then those of channels, each once.
    pub fn approved_topics(&self) -> Vec<&str> {
        let mut topics = vec![self.approved.as_str()];
        for topic in self.approved_by_channel.values() {
            if !topics.contains(&topic.as_str()) {
                topics.push(topic);
            }
        }
        topics
    }

    pub fn approved_by_channel(&self) -> ApprovedByChannel {
        let topics = self.approved_topics();
        let number =
            |topic: &String| topics.iter().position(|known| known == topic).and_then(|at| u16::try_from(at).ok());
        let of = |(channel, topic)| (String::clone(channel), ApprovedTopic(number(topic).unwrap_or_default()));
        self.approved_by_channel.iter().map(of).collect()
    }

    /// The transactional id of a lane, `<group>/<instance>/<lane>`: stable over restarts, and no other lane's. A `/` within a
    /// name is written `%2F` (and `%` as `%25`), so that `a/b` of `c` is not `a` of `b/c`.
    pub fn transactional_id(&self, lane: usize) -> String {
        let part = |name: &str| name.replace('%', "%25").replace('/', "%2F");
        format!("{}/{}/{lane}", part(&self.group), part(&self.instance))
    }

    /// The topics that must exist: intents first, then the outputs.
    pub fn topics(&self) -> [&str; 4] {
        [&self.intents, &self.approved, &self.suppressed, &self.dead_letters]
    }

    /// The options of the refunds' reader: a group of its own, that reads the refunds in place of the intents.
    pub fn for_refunds(&self) -> Option<Self> {
        Some(self.for_topic(self.refunds.as_deref()?, "refunds"))
    }

    /// The options of the reader of activity, likewise. Older records have no effect.
    pub fn for_activity(&self, since: Time) -> Option<Self> {
        let mut options = Self { reads: Reads::Since(since), ..self.for_topic(self.activity.as_deref()?, "activity") };
        // Nothing is lost that retention has deleted.
        options.properties.insert("auto.offset.reset".to_owned(), "earliest".to_owned());
        Some(options)
    }

    pub fn for_delivery_reports(&self) -> Option<Self> {
        Some(self.for_topic(self.delivery_reports.as_deref()?, "delivery-reports"))
    }

    /// The options of the lane that reads approved records whose delivery failed, likewise. It defers them.
    pub fn for_retries(&self) -> Option<Self> {
        let (deferred, undelivered) = (self.deferred.clone(), self.undelivered.clone());
        let options = Self { deferred, undelivered, ..self.for_topic(self.retries.as_deref()?, "retries") };
        Some(options.reading_all())
    }

    /// Where an offset is missing, records are read from the first one, whatever new readers of the intents do.
    pub(super) fn reading_all(mut self) -> Self {
        self.properties.remove("auto.offset.reset");
        self
    }

    fn for_topic(&self, topic: &str, group: &str) -> Self {
        Self {
            intents: topic.to_owned(),
            group: format!("{}-{group}", self.group),
            refunds: None,
            activity: None,
            delivery_reports: None,
            retries: None,
            undelivered: None,
            deferred: None,
            deferred_before: Vec::new(),
            waiting: None,
            memory: LaneMemory::of_reader(),
            // They are not urgent.
            commit_interval: Duration::from_secs(1),
            ..self.clone()
        }
    }

    pub fn client(&self) -> ClientConfig {
        self.with_properties(&[])
    }

    pub fn consumer(&self) -> ClientConfig {
        let mut config = self.with_properties(&[
            ("fetch.queue.backoff.ms", "10"),
            ("fetch.wait.max.ms", &gathering(self.commit_interval).as_millis().to_string()),
            ("fetch.min.bytes", &self.memory.fetch_bytes.min(GATHERED_BYTES).to_string()),
            ("partition.assignment.strategy", self.assignment()),
            ("fetch.message.max.bytes", &self.partition_fetch_bytes().to_string()),
            ("queued.max.messages.kbytes", &(self.memory.queued_bytes / 1024).to_string()),
            ("fetch.error.backoff.ms", FETCH_BACKOFF_MS),
            ("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS),
        ]);
        config
            .set("group.id", &self.group)
            // Where a partition starts is committed before it is read, which librdkafka's own reset does not do.
            .set("auto.offset.reset", "error")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // Offsets without a record would else look like records that are not done.
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed");
        self.bound_fetches(&mut config, self.fetch_bytes());
        config
    }

    /// Sets how much is fetched at a time, and what librdkafka compares that with when it makes a consumer.
    pub(super) fn bound_fetches(&self, config: &mut ClientConfig, fetch_bytes: u64) {
        config
            .set("fetch.max.bytes", fetch_bytes.to_string())
            .set("receive.message.max.bytes", self.inflated_bytes().to_string())
            // The producer's; librdkafka holds a consumer's fetches to it.
            .set("message.max.bytes", fetch_bytes.clamp(1_000, 1_000_000).to_string());
    }

    pub fn producer(&self, lane: usize) -> ClientConfig {
        let mut config = self.with_properties(&[
            ("queue.buffering.max.ms", "5"),
            ("message.max.bytes", &LARGEST_OUTPUT_BYTES.to_string()),
            ("message.timeout.ms", &TRANSACTION_TIMEOUT.as_millis().to_string()),
            // Beyond it producing waits for the broker.
            ("queue.buffering.max.kbytes", &(self.memory.output_bytes / 1024).to_string()),
            ("queue.buffering.max.messages", "1000000"),
            ("retry.backoff.ms", "10"),
        ]);
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("delivery.report.only.error", "true")
            // A batch of records that fit each by itself must fit as well.
            .set("batch.size", sizes::request_bytes(&self.properties, self.limits.smallest()).to_string())
            .set("partitioner", "murmur2_random");
        if self.delivery == Delivery::ExactlyOnce {
            config
                .set("transactional.id", self.transactional_id(lane))
                .set("transaction.timeout.ms", TRANSACTION_TIMEOUT.as_millis().to_string());
        }
        config
    }

    /// What the user's `auto.offset.reset` says; `None` where it is not set.
    pub fn offset_reset(&self) -> Option<OffsetReset> {
        self.properties.get("auto.offset.reset").map(|reset| match reset.trim().to_ascii_lowercase().as_str() {
            "earliest" | "smallest" | "beginning" => OffsetReset::Earliest,
            "latest" | "largest" | "end" => OffsetReset::Latest,
            // `error`; what librdkafka does not take has ended the start.
            _ => OffsetReset::Refuse,
        })
    }

    /// Our defaults, by names that are no aliases, then the user's properties over them, then what only weir may set.
    fn with_properties(&self, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut config = tokens::settings(&self.tokens);
        for (key, value) in defaults {
            config.set(*key, *value);
        }
        for (key, value) in self.files.over(&self.properties) {
            config.set(real_name(&key), value);
        }
        config.set("bootstrap.servers", &self.brokers).set_log_level(RDKafkaLogLevel::Warning);
        config
    }
}

/// How long a broker gathers records for a fetch: a tenth of the interval, but hardly below 10 ms, so that an idle lane does
/// not ask all the time.
fn gathering(commit_interval: Duration) -> Duration {
    let least = Duration::from_millis(10).min(commit_interval / 4);
    (commit_interval / 10).clamp(least.max(Duration::from_millis(1)), LONGEST_GATHERING)
}

/// Why a client cannot be made, without the values of its properties: a password under a mistyped name would be one.
pub fn not_made(error: &KafkaError) -> String {
    if let KafkaError::ClientConfig(found, _, key, _) = error {
        return match found {
            RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN => format!("librdkafka knows no property {key:?}"),
            RDKafkaConfRes::RD_KAFKA_CONF_INVALID | RDKafkaConfRes::RD_KAFKA_CONF_OK => {
                format!("librdkafka does not take the value of {key:?}")
            }
        };
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        properties::ALIASES,
        tests::{options, with},
    };

    #[test]
    fn brokers_gather_for_a_part_of_the_commit_interval() {
        let gathered = [1, 20, 50, 100, 400, 10_000].map(|ms| gathering(Duration::from_millis(ms)).as_millis());
        assert_eq!(gathered, [1, 5, 10, 10, 40, 100]);
    }

    /// As in <https://github.com/confluentinc/confluent-kafka-javascript/issues/511> and
    /// <https://github.com/zendesk/racecar/issues/344>.
    #[test]
    fn the_user_s_value_goes_before_weir_s_by_whichever_name_it_is_set() {
        let read = |config: &ClientConfig, name: &str| config.create_native_config().unwrap().get(name).unwrap();
        for delivery in [Delivery::ExactlyOnce, Delivery::AtLeastOnce] {
            for real in ["fetch.message.max.bytes", "queue.buffering.max.ms", "message.timeout.ms"] {
                let aliases = ALIASES.iter().filter(|(_, of)| *of == real).map(|(alias, _)| *alias);
                for name in aliases.chain([real]) {
                    let options = with(delivery, &[(name, "7777")]);
                    let [consumer, producer] = [options.consumer(), options.producer(0)];
                    assert_eq!([&consumer, &producer].map(|config| read(config, real)), ["7777", "7777"], "{name}");
                    // They are set in no order.
                    for (alias, real) in ALIASES {
                        for config in [&consumer, &producer] {
                            assert!(config.get(alias).is_none() || config.get(real).is_none(), "{alias} and {real}");
                        }
                    }
                }
            }
            let own = read(&with(delivery, &[]).producer(0), "message.timeout.ms");
            assert_eq!(own, TRANSACTION_TIMEOUT.as_millis().to_string());
        }
    }

    #[test]
    fn an_offset_reset_is_read_as_librdkafka_reads_it() {
        let read = |reset| with(Delivery::ExactlyOnce, &[("auto.offset.reset", reset)]).offset_reset();
        assert_eq!(["latest", " Latest", "END"].map(read), [Some(OffsetReset::Latest); 3]);
        assert_eq!(["smallest", " EARLIEST"].map(read), [Some(OffsetReset::Earliest); 2]);
        assert_eq!(["error", "Error"].map(read), [Some(OffsetReset::Refuse); 2]);
    }

    #[test]
    fn shares_of_a_bucket_go_to_different_lanes_and_members_from_before_can_join() {
        let options = options("weir", "0");
        let wheel = WheelTopics::of("later");
        let strategy = |options: &KafkaOptions| {
            options.consumer().get("partition.assignment.strategy").map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(strategy(&options), "range");
        for ring in Ring::ALL {
            assert_eq!(strategy(&options.for_ring(&wheel, ring)), "roundrobin,range");
        }
    }

    #[test]
    fn an_answer_may_inflate_to_twice_what_is_reckoned_and_readers_of_spans_fetch_for_the_least() {
        let sizes = |set: &[(&str, &str)]| {
            let options = with(Delivery::ExactlyOnce, set);
            (options.answer_bytes(), options.span_fetch_bytes())
        };
        assert_eq!(sizes(&[]), (32 << 20, (32 << 20) / 10));
        assert_eq!(sizes(&[("fetch.max.bytes", "1000")]), (32 << 20, 1_000));
        assert_eq!(sizes(&[("fetch.max.bytes", "4194304")]), (80 << 20, 4 << 20));
        assert_eq!(sizes(&[("fetch.max.bytes", "18446744073709551615")]).0, u64::MAX);
        assert_eq!(sizes(&[("receive.message.max.bytes", "1000000")]).1, 1_000_000 - 512);
    }

    #[test]
    fn no_two_lanes_of_any_groups_and_instances_have_one_transactional_id() {
        let names = ["weir", "weir-eu", "0", "eu-0", "weir/eu", "eu/0", "weir%2Feu", "/", ""];
        let mut ids = std::collections::BTreeSet::new();
        for (group, instance) in names.iter().flat_map(|group| names.iter().map(move |instance| (group, instance))) {
            for lane in [0, 1, 10] {
                let options = options(group, instance);
                assert!(ids.insert(options.transactional_id(lane)), "{group} {instance} {lane}");
            }
        }
        assert_eq!(options("weir", "eu-0").transactional_id(1), "weir/eu-0/1");
    }
}
