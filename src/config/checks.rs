//! The checks of settings that depend on each other.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::deferral::wheel::Ring;
use weir_kafka::properties::real_name;

use super::{
    layers::Layers,
    settings::{KafkaSettings, RedisSettings},
    values::{topic, topics_by_channel},
};

/// Notes what contradicts each other. A section that is wrong by itself is `None`.
pub(super) fn together(layers: &Layers<'_>, kafka: Option<&KafkaSettings>, redis: Option<&RedisSettings>) {
    distinct_topics(layers);
    deferred_before(layers, kafka);
    retries(layers, kafka);
    one_source_of_a_secret(layers);
    one_source_of_a_property(layers, kafka);
    one_name_of_a_property(layers, kafka);
    certificate_and_key(layers);
    longer_than_a_time_out(layers, redis);
    kafka_by_sasl(layers, kafka);
    kafka_by_iam(layers, kafka);
    redis_by_iam(layers, redis);
}

/// A record written to one topic must not be read or taken for one of another.
fn distinct_topics(layers: &Layers<'_>) {
    const TOPICS: [&str; 9] = [
        "kafka.intents",
        "kafka.approved",
        "kafka.suppressed",
        "kafka.dead_letters",
        "kafka.refunds",
        "kafka.activity",
        "kafka.delivery_reports",
        "kafka.retries",
        "kafka.undelivered",
    ];
    let of_wheel = |prefix: String| Ring::ALL.map(|ring| ("kafka.deferred", ring.topic(&prefix)));
    let single = TOPICS.iter().filter_map(|key| Some((*key, layers.given(key, topic)?)));
    // Channels may share a topic, also with all other channels.
    let approved = layers.given("kafka.approved", topic);
    let by_channel = layers.given("kafka.approved_by_channel", topics_by_channel).unwrap_or_default();
    let by_channel: BTreeSet<String> =
        by_channel.into_values().filter(|name| approved.as_ref() != Some(name)).collect();
    let topics: Vec<(&str, String)> = single
        .chain(by_channel.into_iter().map(|name| ("kafka.approved_by_channel", name)))
        .chain(layers.given("kafka.deferred", topic).into_iter().flat_map(of_wheel))
        .collect();
    for (number, (key, name)) in topics.iter().enumerate() {
        if let Some((before, _)) = topics[..number].iter().find(|(_, before)| before == name) {
            layers.note(key, &format!("and {before} are both {name:?}: each must be a topic of its own"));
        }
    }
}

/// The topics that were deferred to before are not those that are deferred to now, and need the latter.
fn deferred_before(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    let Some(KafkaSettings { deferred, deferred_before, .. }) = kafka else { return };
    match deferred {
        None if !deferred_before.is_empty() => {
            layers
                .note("kafka.deferred_before", "needs kafka.deferred: a deferred intent may have to be deferred again");
        }
        Some(prefix) if deferred_before.contains(prefix) => {
            layers.note("kafka.deferred_before", &format!("has {prefix:?}, which is kafka.deferred: leave it out"));
        }
        Some(_) | None => {}
    }
}

/// A retry is deferred, and what is not tried again has to go somewhere.
fn retries(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    let Some(KafkaSettings { retries: Some(_), deferred, undelivered, .. }) = kafka else { return };
    if deferred.is_none() {
        layers.note("kafka.retries", "needs kafka.deferred: a delivery is tried again later");
    }
    if undelivered.is_none() {
        layers.note("kafka.retries", "needs kafka.undelivered: the topic of deliveries that are not tried again");
    }
}

fn one_source_of_a_secret(layers: &Layers<'_>) {
    for (key, file_key) in [
        ("redis.password", "redis.password_file"),
        ("schemas.password", "schemas.password_file"),
        ("http.token", "http.token_file"),
    ] {
        if layers.is_given(key) && layers.is_given(file_key) {
            layers.note(file_key, &format!("and {key} are both set: keep one"));
        }
    }
}

fn one_source_of_a_property(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    let Some(KafkaSettings { properties, property_files, .. }) = kafka else { return };
    for name in property_files.keys().filter(|name| properties.contains_key(*name)) {
        layers.note("kafka.property_files", &format!("and kafka.properties both have {name:?}: keep one"));
    }
}

/// librdkafka has aliases, and either value might win.
fn one_name_of_a_property(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    let Some(kafka) = kafka else { return };
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, _) in kafka.properties() {
        if let Some(other) = names.insert(real_name(name), name)
            && other != name
        {
            let reason = format!("has {other:?} and {name:?}, which are two names of one property: keep one");
            let table = if kafka.properties.is_empty() { "kafka.property_files" } else { "kafka.properties" };
            layers.note(table, &reason);
        }
    }
}

fn certificate_and_key(layers: &Layers<'_>) {
    let (certificate, key) = ("redis.cert_file", "redis.key_file");
    match (layers.is_given(certificate), layers.is_given(key)) {
        (true, true) | (false, false) => {}
        (true, false) => layers.note(certificate, "needs redis.key_file, the key of the certificate"),
        (false, true) => layers.note(key, "needs redis.cert_file, the certificate of the key"),
    }
}

fn longer_than_a_time_out(layers: &Layers<'_>, redis: Option<&RedisSettings>) {
    if let Some(RedisSettings { timeout, unavailable_after: Some(after), .. }) = redis
        && *after < 2 * *timeout
    {
        layers.note("redis.unavailable_after", "must be at least twice redis.timeout");
    }
}

/// librdkafka's default is Kerberos, which is not built in: it would report that once a client is created, with the advice to recompile it. A
/// client without tokens would be created, and fail to authenticate.
fn kafka_by_sasl(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    let Some(kafka) = kafka.filter(|kafka| kafka.aws_iam_region.is_none()) else { return };
    let value = |names: &[&str]| {
        let property = kafka.properties().find(|(name, _)| names.contains(&name.as_str()));
        property.map(|(_, value)| value.expose().trim())
    };
    let is_sasl =
        value(&["security.protocol"]).is_some_and(|protocol| protocol.to_ascii_lowercase().starts_with("sasl_"));
    let is_known =
        |mechanism: &str| ["PLAIN", "OAUTHBEARER"].contains(&mechanism) || mechanism.starts_with("SCRAM-SHA-");
    let mechanism = value(&["sasl.mechanism", "sasl.mechanisms"]).filter(|mechanism| is_known(mechanism));
    let is = |name: &str, words: &[&str]| {
        value(&[name]).is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
    };
    // Unsigned tokens are for development alone: the error does not recommend them.
    let has_tokens =
        is("sasl.oauthbearer.method", &["oidc"]) || is("enable.sasl.oauthbearer.unsecure.jwt", &["true", "t", "1"]);
    if is_sasl && mechanism.is_none() {
        let reason = "needs \"sasl.mechanism\" = \"SCRAM-SHA-512\", \"SCRAM-SHA-256\", \"PLAIN\" or \"OAUTHBEARER\" for this \
                      \"security.protocol\"; Kerberos (GSSAPI) is not built in";
        layers.note("kafka.properties", reason);
    } else if is_sasl && mechanism == Some("OAUTHBEARER") && !has_tokens {
        let reason = "needs tokens for \"sasl.mechanism\" = \"OAUTHBEARER\": set \"sasl.oauthbearer.method\" = \"oidc\", or, for \
                      Amazon MSK, kafka.aws_iam_region in place of all \"sasl.\" properties";
        layers.note("kafka.properties", reason);
    }
}

/// A token goes over TLS alone, and nothing else signs in beside it.
fn kafka_by_iam(layers: &Layers<'_>, kafka: Option<&KafkaSettings>) {
    const REGION: &str = "kafka.aws_iam_region";
    let Some(kafka) = kafka.filter(|kafka| kafka.aws_iam_region.is_some()) else { return };
    for (name, value) in kafka.properties() {
        if name.starts_with("sasl.") || name.contains("oauthbearer") {
            layers.note(REGION, &format!("and the property {name:?} are two ways to sign in: keep one"));
        } else if name == "security.protocol" && !value.expose().eq_ignore_ascii_case("SASL_SSL") {
            layers.note(REGION, "needs TLS: leave the property \"security.protocol\" out");
        }
    }
}

fn redis_by_iam(layers: &Layers<'_>, redis: Option<&RedisSettings>) {
    const CLUSTER: &str = "redis.aws_iam_cluster";
    if !layers.is_given(CLUSTER) {
        for key in ["redis.aws_iam_region", "redis.aws_iam_service"] {
            if layers.is_given(key) {
                layers.note(key, &format!("needs {CLUSTER}, the cluster's name"));
            }
        }
        return;
    }
    for needed in ["redis.aws_iam_region", "redis.username"] {
        if !layers.is_given(needed) {
            layers.note(CLUSTER, &format!("needs {needed}"));
        }
    }
    for password in ["redis.password", "redis.password_file"] {
        if layers.is_given(password) {
            layers.note(CLUSTER, &format!("and {password} are two ways to sign in: keep one"));
        }
    }
    let Some(RedisSettings { nodes, username, .. }) = redis else { return };
    if !nodes.iter().all(|node| node.expose().starts_with("rediss://")) {
        layers.note(CLUSTER, "needs TLS: write rediss:// in redis.nodes");
    }
    if nodes.iter().any(|node| node.expose().contains('@')) {
        layers.note(CLUSTER, "signs redis.username in: leave users and passwords out of redis.nodes");
    }
    // It becomes a part of a URL.
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if username.as_ref().is_some_and(|name| !is_plain(name)) {
        layers.note("redis.username", "must be letters, digits or \"-\", as AWS has the names of its users");
    }
}
