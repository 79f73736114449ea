//! Properties that librdkafka takes one by one and refuses together.
//!
//! librdkafka compares them when it makes a client. Its error may name a property that weir sets, or a default, and not the one that
//! the user set. So each kind of client is made once without brokers, and its error becomes a sentence about the user's property.

use rdkafka::{
    ClientConfig,
    client::{Client, DefaultClientContext},
    error::{KafkaError, KafkaResult},
    types::RDKafkaType,
};

use super::{
    client::{KafkaOptions, TRANSACTION_TIMEOUT, not_made},
    properties::real_name,
};

/// What one property must be because of another one.
#[derive(Debug, Clone, Copy)]
enum Must {
    /// Not above the other one and so much more.
    BeAtMost(f64),
    /// Not below the other one and so much more.
    BeAtLeast(f64),
    /// This: weir sets the other one, whatever the user says.
    Be(&'static str),
}

/// How librdkafka's error begins, the property that is wrong, what it must be, and the one that it is compared with.
const COMPARED: [(&str, &str, Must, &str); 11] = [
    ("`fetch.max.bytes`", "fetch.max.bytes", Must::Be("1000 or more"), "message.max.bytes"),
    ("`max.in.flight`", "max.in.flight.requests.per.connection", Must::Be("5 or less"), "enable.idempotence"),
    ("`max.poll.interval.ms`", "session.timeout.ms", Must::BeAtMost(0.0), "max.poll.interval.ms"),
    ("`message.timeout.ms` must be greater", "queue.buffering.max.ms", Must::BeAtMost(-1.0), "message.timeout.ms"),
    ("`message.timeout.ms` must be set", "message.timeout.ms", Must::BeAtMost(0.0), "transaction.timeout.ms"),
    (
        "`queue.buffering.backpressure.threshold`",
        "queue.buffering.backpressure.threshold",
        Must::Be("1"),
        "enable.idempotence",
    ),
    ("`queuing.strategy`", "queuing.strategy", Must::Be("fifo"), "enable.idempotence"),
    ("`receive.message.max.bytes`", "receive.message.max.bytes", Must::BeAtLeast(512.0), "fetch.max.bytes"),
    ("`reconnect.backoff.max.ms`", "reconnect.backoff.max.ms", Must::BeAtLeast(0.0), "reconnect.backoff.ms"),
    ("`retries`", "message.send.max.retries", Must::Be("1 or more"), "enable.idempotence"),
    ("`socket.timeout.ms`", "socket.timeout.ms", Must::BeAtMost(100.0), "transaction.timeout.ms"),
];

/// The least `message.timeout.ms`, in milliseconds: a partition has no leader for a while where its broker ends.
const LEAST_DELIVERY_MS: u128 = 1_000;

/// What librdkafka or weir refuses of the properties together, a sentence for each kind of client that cannot be made. The user's values are
/// not in it.
pub fn find(options: &KafkaOptions) -> Vec<String> {
    let consumer = (options.consumer(), RDKafkaType::RD_KAFKA_CONSUMER);
    let producer = (options.producer(0), RDKafkaType::RD_KAFKA_PRODUCER);
    let mut found = Vec::new();
    for (config, kind) in [consumer, producer] {
        let is_producer = matches!(kind, RDKafkaType::RD_KAFKA_PRODUCER);
        let refused = match make_without_brokers(config.clone(), kind) {
            Err(error) => Some(sentence(options, &config, &error)),
            Ok(()) if is_producer => delivery_time(options, &config),
            Ok(()) => None,
        };
        if let Some(sentence) = refused
            && !found.contains(&sentence)
        {
            found.push(sentence);
        }
    }
    found
}

/// The sentence about how long a record may take to be written, where that is not what all else goes by. Without transactions, librdkafka
/// would take any time, even one without end.
fn delivery_time(options: &KafkaOptions, config: &ClientConfig) -> Option<String> {
    const NAME: &str = "message.timeout.ms";
    let set = options.properties.keys().find(|key| real_name(key) == NAME)?;
    let time_ms: u128 = config.create_native_config().ok()?.get(NAME).ok()?.parse().ok()?;
    let most_ms = TRANSACTION_TIMEOUT.as_millis();
    (!(LEAST_DELIVERY_MS..=most_ms).contains(&time_ms)).then(|| {
        format!(
            "kafka.properties.{set} must be {LEAST_DELIVERY_MS} to {most_ms}: with less, records fail where a broker ends; with more, they may be \
             written after weir has given their batch up and decided it again"
        )
    })
}

/// Makes a client that connects to nothing, and ends it.
fn make_without_brokers(mut config: ClientConfig, kind: RDKafkaType) -> KafkaResult<()> {
    config
        .remove("bootstrap.servers")
        // Who is in no group does not wait for an answer to its leave.
        .remove("group.id")
        // Nor for a last push of metrics.
        .set("enable.metrics.push", "false");
    // librdkafka would ask the server of OpenID Connect for a token at once. It compares those properties whatever the protocol is.
    if config.get("sasl.oauthbearer.method").is_some() {
        config.set("security.protocol", "plaintext");
    }
    let client = Client::new(&config, config.create_native_config()?, kind, DefaultClientContext)?;
    drop(client);
    Ok(())
}

fn sentence(options: &KafkaOptions, config: &ClientConfig, error: &KafkaError) -> String {
    let reason = if let KafkaError::ClientCreation(reason) = error { reason.clone() } else { not_made(error) };
    compared(options, config, &reason).unwrap_or_else(|| format!("librdkafka refuses [kafka.properties]: {reason}"))
}

/// The sentence about two properties, one of which the user has set.
fn compared(options: &KafkaOptions, config: &ClientConfig, reason: &str) -> Option<String> {
    let (_, name, must, other) = *COMPARED.iter().find(|(begins, ..)| reason.starts_with(begins))?;
    let of_user = |name: &str| options.properties.keys().find(|key| real_name(key) == name);
    let native = config.create_native_config().ok()?;
    let is = |name: &str| {
        let source = if config.get(name).is_some() { "which weir sets" } else { "librdkafka's default" };
        native.get(name).ok().map(|value| (format!("{name} is {value}, {source}"), value))
    };
    // Of two numbers, the user has set either, or both.
    let (set, least, other, more) = match (must, of_user(name), of_user(other)) {
        (Must::Be(words), Some(set), _) => {
            return Some(format!("kafka.properties.{set} must be {words}: {}", is(other)?.0));
        }
        (Must::BeAtMost(more), Some(set), None) => (set, false, other, more),
        (Must::BeAtLeast(more), Some(set), None) => (set, true, other, more),
        (Must::BeAtMost(more), None, Some(set)) => (set, true, name, -more),
        (Must::BeAtLeast(more), None, Some(set)) => (set, false, name, -more),
        (Must::BeAtMost(_) | Must::BeAtLeast(_), Some(one), Some(two)) => {
            return Some(format!("kafka.properties.{one} and kafka.properties.{two} do not go together: {reason}"));
        }
        (Must::Be(_), None, _) | (Must::BeAtMost(_) | Must::BeAtLeast(_), None, None) => return None,
    };
    let (other, value) = is(other)?;
    let limit = value.parse::<f64>().ok()? + more;
    let side = if least { "more" } else { "less" };
    Some(format!("kafka.properties.{set} must be {limit} or {side}: {other}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Delivery, tests::with, topics::asking};

    static OPEN_ID: [(&str, &str); 6] = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.id", "weir"),
        ("sasl.oauthbearer.client.secret", "hunter2"),
        ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/"),
    ];

    /// As in <https://github.com/karafka/waterdrop/issues/465>, <https://github.com/zendesk/racecar/issues/163> and
    /// <https://github.com/confluentinc/confluent-kafka-python/issues/823>.
    #[test]
    fn what_is_refused_together_is_said_of_the_user_s_property_with_its_bound() {
        let transaction = "transaction.timeout.ms is 15000, which weir sets";
        let idempotence = "enable.idempotence is true, which weir sets";
        let longest = "reconnect.backoff.max.ms is 10000, librdkafka's default";
        for (name, value, bound, because) in [
            ("message.timeout.ms", "120000", "15000 or less", transaction),
            ("linger.ms", "20000", "14999 or less", "message.timeout.ms is 15000, which weir sets"),
            ("queue.buffering.max.ms", "15000", "14999 or less", "message.timeout.ms is 15000, which weir sets"),
            ("message.timeout.ms", "5", "6 or more", "queue.buffering.max.ms is 5, which weir sets"),
            ("max.in.flight.requests.per.connection", "10", "5 or less", idempotence),
            ("message.send.max.retries", "0", "1 or more", idempotence),
            ("queue.buffering.backpressure.threshold", "2", "1", idempotence),
            ("queuing.strategy", "lifo", "fifo", idempotence),
            ("max.poll.interval.ms", "10000", "45000 or more", "session.timeout.ms is 45000, librdkafka's default"),
            ("receive.message.max.bytes", "1000000", "1652019 or more", "fetch.max.bytes is 1651507, which weir sets"),
            ("fetch.max.bytes", "500", "1000 or more", "message.max.bytes is 1000, which weir sets"),
            ("reconnect.backoff.ms", "20000", "10000 or less", longest),
        ] {
            let found = find(&with(Delivery::ExactlyOnce, &[(name, value)]));
            assert_eq!(found, [format!("kafka.properties.{name} must be {bound}: {because}")], "{name} = {value}");
        }
    }

    #[test]
    fn what_is_wrong_with_several_of_the_user_s_is_said_without_their_values() {
        let together =
            "kafka.properties.session.timeout.ms and kafka.properties.max.poll.interval.ms do not go together: ";
        let no_endpoint = "librdkafka refuses [kafka.properties]: `sasl.oauthbearer.token.endpoint.url` is mandatory";
        let apart = [("session.timeout.ms", "600000"), ("max.poll.interval.ms", "400000")];
        let signed = [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN")];
        let certified = [("security.protocol", "SSL"), ("ssl.ca.location", "/not/there")];
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&apart, together),
            (&signed, "librdkafka refuses [kafka.properties]: sasl.username and sasl.password must be set"),
            (&certified, "librdkafka refuses [kafka.properties]: ssl.ca.location failed"),
            (&OPEN_ID[..5], no_endpoint),
        ];
        for (properties, words) in cases {
            let found = find(&with(Delivery::ExactlyOnce, properties));
            assert!(found.len() == 1 && found[0].starts_with(words), "{properties:?}: {found:?}");
            assert!(!found[0].contains("hunter2") && !found[0].contains("600000"), "{found:?}");
        }
    }

    #[test]
    fn what_goes_together_is_not_refused_neither_to_read_nor_to_ask() {
        let cases: [(Delivery, &[(&str, &str)]); 11] = [
            (Delivery::ExactlyOnce, &[]),
            (Delivery::AtLeastOnce, &[]),
            (Delivery::AtLeastOnce, &[("socket.timeout.ms", "60000"), ("message.timeout.ms", "15000")]),
            (Delivery::AtLeastOnce, &[("delivery.timeout.ms", "1000")]),
            (Delivery::ExactlyOnce, &[("socket.timeout.ms", "15100"), ("message.timeout.ms", " 15000")]),
            (Delivery::ExactlyOnce, &[("linger.ms", "14999"), ("max.in.flight", "5"), ("retries", "1")]),
            (Delivery::ExactlyOnce, &[("session.timeout.ms", "600000"), ("max.poll.interval.ms", "600000")]),
            (Delivery::ExactlyOnce, &[("receive.message.max.bytes", "1652019")]),
            (Delivery::ExactlyOnce, &[("fetch.max.bytes", "1000"), ("message.max.bytes", "5000000")]),
            (Delivery::ExactlyOnce, &[("fetch.max.bytes", "2147483135")]),
            (Delivery::ExactlyOnce, &OPEN_ID),
        ];
        for (delivery, properties) in cases {
            let options = with(delivery, properties);
            assert_eq!(find(&options), [""; 0], "{properties:?}");
            if properties != OPEN_ID {
                assert_eq!(asking(&options, &options.client()).err().map(|error| error.to_string()), None);
            }
        }
    }

    #[test]
    fn a_record_has_a_second_to_be_written_at_the_least_and_no_longer_than_a_batch() {
        let (once, at_least) = (Delivery::ExactlyOnce, Delivery::AtLeastOnce);
        for (delivery, name, value) in [
            (at_least, "message.timeout.ms", "120000"),
            (at_least, "delivery.timeout.ms", "15001"),
            (at_least, "delivery.timeout.ms", "0"),
            (at_least, "message.timeout.ms", "999"),
            (once, "message.timeout.ms", "999"),
        ] {
            let found = find(&with(delivery, &[(name, value)]));
            let words = format!("kafka.properties.{name} must be 1000 to 15000: ");
            assert!(found.len() == 1 && found[0].starts_with(&words), "{name} = {value}: {found:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_thread_of_a_client_is_left_behind() {
        use std::time::{Duration, Instant};

        let threads = || -> Vec<String> {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
        };
        let cases: [&[(&str, &str)]; 3] = [&[], &OPEN_ID, &[("socket.timeout.ms", "60000")]];
        for properties in cases {
            let _ = find(&with(Delivery::ExactlyOnce, properties));
            let begun = Instant::now();
            // The system forgets a thread some moments after its end.
            while threads().iter().any(|name| name.starts_with("rdk:")) {
                assert!(begun.elapsed() < Duration::from_secs(60), "{properties:?}: {:?}", threads());
                std::thread::yield_now();
            }
        }
    }
}
