//! Properties of librdkafka, checked before there is a client.

use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaConfRes};

/// How properties of Java's clients begin that librdkafka has not, and what it has instead.
const JAVA: [(&str, &str); 3] = [
    ("sasl.jaas.", "sasl.username and sasl.password"),
    ("ssl.keystore.", "ssl.certificate.location and ssl.key.location, PEM files"),
    ("ssl.truststore.", "ssl.ca.location, a PEM file"),
];

/// librdkafka's aliases, each with the name of the property that it sets.
///
/// `enable.auto.commit` is not here: it is an alias of a topic's property, and clients have a property of that name.
pub(super) const ALIASES: [(&str, &str); 11] = [
    ("acks", "request.required.acks"),
    ("bootstrap.servers", "metadata.broker.list"),
    ("compression.type", "compression.codec"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("linger.ms", "queue.buffering.max.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("retries", "message.send.max.retries"),
    ("sasl.mechanism", "sasl.mechanisms"),
    ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"),
    ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret"),
];

/// The name of a property that is no alias. A client's properties are set in no order: of two names, either may win.
pub fn real_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| *real)
}

/// Checks a property.
///
/// # Errors
/// Why librdkafka does not take it, as a sentence that goes on after its name. The value is not in it: it may be a secret.
pub fn check(name: &str, value: &str) -> Result<(), String> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(made) => match made.get(name) {
            Ok(read) if is_cut(value, &read) => {
                Err("must be a whole number in digits, without a unit: librdkafka would read another one".to_owned())
            }
            // Some cannot be read back.
            Ok(_) | Err(_) => Ok(()),
        },
        Err(error) => Err(reason(name, &error)),
    }
}

/// Whether a number was read of a value that is not this number: librdkafka takes `45` of `45s`.
fn is_cut(value: &str, read: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    value != read && number(read).is_some() && number(value) != number(read)
}

fn reason(name: &str, error: &KafkaError) -> String {
    if let Some((_, instead)) = JAVA.iter().find(|(start, _)| name.starts_with(start)) {
        return format!("is a property of Java's clients: set {instead}");
    }
    if !is_unknown(error) {
        return "has a value that librdkafka does not take".to_owned();
    }
    let dotted = name.replace('_', ".");
    if dotted != name && is_known(&dotted) {
        return format!("is no property of librdkafka; did you mean {dotted:?}?");
    }
    "is no property of librdkafka (its CONFIGURATION.md has all of them)".to_owned()
}

fn is_unknown(error: &KafkaError) -> bool {
    matches!(error, KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..))
}

fn is_known(name: &str) -> bool {
    // To read one that is not set fails, too.
    !ClientConfig::new().set(name, "1").create_native_config().is_err_and(|error| is_unknown(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alias_sets_the_property_that_it_is_an_alias_of() {
        for (alias, real) in ALIASES {
            let value = match real {
                "compression.codec" => "lz4",
                "sasl.mechanisms" => "PLAIN",
                _ => "77",
            };
            let made = ClientConfig::new().set(alias, value).create_native_config().expect(alias);
            assert_eq!(made.get(real).expect(real), value, "{alias}");
            assert_eq!((real_name(alias), real_name(real)), (real, real));
        }
        assert_eq!(real_name("client.id"), "client.id");
    }

    #[test]
    fn properties_are_taken_as_librdkafka_takes_them_and_numbers_as_a_whole() {
        for (name, value) in [
            ("session.timeout.ms", "45000"),
            ("session.timeout.ms", " 45000"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.password", "45s"),
            ("client.id", "45s"),
            ("client.id", "nan"),
            ("auto.offset.reset", "latest"),
            ("compression.type", "none"),
            ("socket.keepalive.enable", "true"),
            ("ssl.ca.location", "/not/there"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name} = {value}");
        }
        for (name, value, expected) in [
            ("session.timeout.ms", "45s", "without a unit"),
            ("session.timeout.ms", "45 s", "without a unit"),
            ("session.timeout.ms", "1e3", "without a unit"),
            ("session.timeout.ms", "4294968296", "without a unit"),
            ("session.timeout.ms", "soon", "has a value that librdkafka does not take"),
            ("message.timeout.ms", "5min", "without a unit"),
            ("security.protocol", "TLS", "has a value that librdkafka does not take"),
            ("sasl.jaas.config", "hunter2", "of Java's clients: set sasl.username and sasl.password"),
            ("ssl.truststore.location", "hunter2", "set ssl.ca.location, a PEM file"),
            ("ssl.truststore.password", "hunter2", "set ssl.ca.location, a PEM file"),
            ("ssl.keystore.type", "hunter2", "set ssl.certificate.location and ssl.key.location"),
            ("bootstrap_servers", "hunter2", "did you mean \"bootstrap.servers\"?"),
            ("sasl.pasword", "hunter2", "is no property of librdkafka"),
        ] {
            let reason = check(name, value).expect_err(name);
            assert!(reason.contains(expected) && !reason.contains("hunter2"), "{name} = {value}: {reason}");
        }
    }
}
