//! `[kafka]`.

use std::collections::BTreeMap;

use weir_core::document::{
    Entry, Node, Value,
    value::{Parsed, flag, must_be, one_of, text, whole},
};

use crate::config::{Delivery, KafkaSettings, Secret, keys::REFUSED_PROPERTIES, layers::Layers};

/// The topics, by setting.
const TOPICS: [&str; 4] = ["kafka.intents", "kafka.approved", "kafka.suppressed", "kafka.dead_letters"];
/// All of them: those above, and those that need not be.
const ALL_TOPICS: [&str; 5] = [TOPICS[0], TOPICS[1], TOPICS[2], TOPICS[3], "kafka.refunds"];

pub(super) fn settings(layers: &Layers<'_>) -> Option<KafkaSettings> {
    let brokers = layers.get("kafka.brokers", brokers);
    let group = layers.get("kafka.group", |node| text(node).map(str::to_owned));
    let topics = TOPICS.map(|key| layers.get(key, topic));
    let refunds = layers.optional("kafka.refunds", topic);
    let [first, second, third, fourth] = topics.clone();
    distinct(layers, &[first, second, third, fourth, refunds.clone()]);
    let deliveries = [("exactly_once", Delivery::ExactlyOnce), ("at_least_once", Delivery::AtLeastOnce)];
    let delivery = layers.get("kafka.delivery", |node| one_of(node, &deliveries));
    let instance = layers.optional("kafka.instance", |node| text(node).map(str::to_owned));
    let create_topics = layers.get("kafka.create_topics", flag);
    let create_partitions = layers.get("kafka.create_partitions", |node| whole(node, 1..=10_000_i32));
    let properties = properties(layers);
    let [intents, approved, suppressed, dead_letters] = topics;
    Some(KafkaSettings {
        brokers: brokers?,
        group: group?,
        intents: intents?,
        approved: approved?,
        suppressed: suppressed?,
        dead_letters: dead_letters?,
        refunds,
        delivery: delivery?,
        instance: instance.unwrap_or_else(|| gethostname::gethostname().to_string_lossy().into_owned()),
        create_topics: create_topics?,
        create_partitions: create_partitions?,
        properties,
    })
}

fn brokers(node: &Node) -> Parsed<String> {
    let text = text(node)?;
    let fine = |broker: &str| !broker.trim().is_empty() && !broker.trim().contains([' ', '/']);
    if text.split(',').all(fine) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "must be host:port, several with commas, not {text:?}; TLS is set by \"security.protocol\" in [kafka.properties]"
    ))
}

/// A topic's name, by Kafka's own rule.
fn topic(node: &Node) -> Parsed<String> {
    const MAX_TOPIC_CHARS: usize = 249;
    let text = text(node)?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.len() <= MAX_TOPIC_CHARS && text.chars().all(fine) && text != "." && text != ".." {
        return Ok(text.to_owned());
    }
    Err(format!("must be a topic's name (1 to {MAX_TOPIC_CHARS} letters, digits, \".\", \"_\" or \"-\"), not {text:?}"))
}

/// What is written to one topic must not be read or taken for what is written to another.
fn distinct(layers: &Layers<'_>, topics: &[Option<String>; 5]) {
    for (number, topic) in topics.iter().enumerate() {
        let same = topics[..number].iter().position(|before| before.is_some() && before == topic);
        if let Some(before) = same {
            let name = topic.as_deref().unwrap_or_default();
            layers.note(
                ALL_TOPICS[number],
                &format!("and {} are both {name:?}: each must be a topic of its own", ALL_TOPICS[before]),
            );
        }
    }
}

fn properties(layers: &Layers<'_>) -> BTreeMap<String, Secret> {
    let mut properties = BTreeMap::new();
    for Entry { key, origin, node } in layers.properties("kafka.properties") {
        let path = format!("kafka.properties.{key}");
        if let Some((_, reason)) = REFUSED_PROPERTIES.iter().find(|(refused, _)| refused == key) {
            layers.document().note(origin, format!("{path} is for weir to set ({reason}): leave it out"));
            continue;
        }
        match property(node) {
            Ok(value) => {
                properties.insert(key.clone(), value);
            }
            Err(reason) => layers.document().note(&node.origin, format!("{path} {reason}")),
        }
    }
    properties
}

fn property(node: &Node) -> Parsed<Secret> {
    match &node.value {
        Value::Text(text) => Ok(Secret::new(text)),
        Value::Whole(number) => Ok(Secret::new(number.to_string())),
        Value::Number(number) => Ok(Secret::new(number)),
        Value::Flag(flag) => Ok(Secret::new(flag.to_string())),
        Value::Null | Value::Date(_) | Value::List(_) => Err(must_be("a string, number, true or false", node)),
        Value::Table(_) => Err("is a table: put names with dots in quotes, \"security.protocol\" = ...".into()),
    }
}
