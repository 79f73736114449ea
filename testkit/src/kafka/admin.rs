//! Making, changing and deleting topics.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{
        AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
        TopicResult,
    },
    consumer::Consumer,
    error::KafkaResult,
};

use super::{
    KafkaClient,
    broker::java,
    client::{REQUEST_DEADLINE, UNCOMMITTED},
};
use crate::{process::output, wait_for, wait_until};

impl KafkaClient {
    /// Creates a topic, replicated to all brokers, and waits until each partition has a leader that answers for it: brokers know a
    /// leader before it has made the partition, which a busy one does seconds later.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.create_topic_with(name, partitions, &[])
    }

    /// Creates a topic with settings of its own (`("cleanup.policy", "compact")`).
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        self.create_topics(&[(name, partitions)], settings)
    }

    /// Creates topics with the same settings, in one request.
    pub fn create_topics(&self, topics: &[(&str, i32)], settings: &[(&str, &str)]) -> Result<()> {
        let new = topics.iter().map(|&(name, partitions)| {
            let new = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
            settings.iter().fold(new, |new, (key, value)| new.set(key, value))
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        done(self.admin()?.create_topics(&new, &options()))?;
        for &(name, partitions) in topics {
            self.wait_leaders(name, partitions);
        }
        Ok(())
    }

    fn wait_leaders(&self, topic: &str, partitions: i32) {
        wait_until(REQUEST_DEADLINE, &format!("{topic} has {partitions} partitions with leaders"), || {
            self.end_offsets(topic).is_ok_and(|ends| i32::try_from(ends.len()) == Ok(partitions))
        });
    }

    pub fn delete_topic(&self, name: &str) -> Result<()> {
        self.forget_read(name);
        done(self.admin()?.delete_topics(&[name], &options()))
    }

    /// Deletes all topics whose names begin so, in one request, and waits at most so long for the brokers.
    pub fn delete_topics_of(&self, prefix: &str, within: Duration) -> Result<()> {
        let metadata = self.ask(UNCOMMITTED, |consumer| Ok(consumer.fetch_metadata(None, within)?))?;
        let topics = metadata.topics().iter().map(|topic| topic.name());
        let topics: Vec<&str> = topics.filter(|topic| topic.starts_with(prefix)).collect();
        if topics.is_empty() {
            return Ok(());
        }
        let options = AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within));
        done(self.admin()?.delete_topics(&topics, &options))
    }

    /// Gives a topic more partitions; `count` is how many it has then.
    pub fn grow_topic(&self, name: &str, count: i32) -> Result<()> {
        let more = NewPartitions::new(name, usize::try_from(count)?);
        done(self.admin()?.create_partitions([&more], &options()))?;
        self.wait_leaders(name, count);
        Ok(())
    }

    /// Gives a topic these settings of its own and no others, and waits until the broker that answers shows them: the
    /// controller accepts a change before brokers know of it, and one that is busy learns of it seconds later.
    pub fn configure_topic(&self, name: &str, settings: &[(&str, &str)]) -> Result<()> {
        let (admin, options) = (self.admin()?, options());
        let change = AlterConfig::new(ResourceSpecifier::Topic(name));
        let change = settings.iter().fold(change, |change, (key, value)| change.set(key, value));
        for result in futures_executor::block_on(admin.alter_configs([&change], &options))? {
            result.map_err(|(_, code)| anyhow!("settings of topic {name}: {code}"))?;
        }
        let mut wanted: Vec<_> = settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        wanted.sort_unstable();
        let shown = || self.topic_settings(name).ok().filter(|shown| *shown == wanted);
        wait_for(REQUEST_DEADLINE, shown).with_context(|| format!("{name} does not show its settings {wanted:?}"))?;
        Ok(())
    }

    pub fn topic_settings(&self, name: &str) -> Result<Vec<(String, String)>> {
        let (admin, options) = (self.admin()?, options());
        let topic = [ResourceSpecifier::Topic(name)];
        let answer = futures_executor::block_on(admin.describe_configs(&topic, &options))?.pop();
        let resource = answer.with_context(|| format!("no answer about topic {name}"))?;
        let entries = resource.map_err(|code| anyhow!("settings of topic {name}: {code}"))?.entries;
        let own = entries.into_iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
        let mut own: Vec<_> = own.map(|entry| (entry.name, entry.value.unwrap_or_default())).collect();
        own.sort_unstable();
        Ok(own)
    }

    /// Deletes the records of a partition before an offset, as retention does.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let (admin, options) = (self.admin()?, options());
        self.forget_read(topic);
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(before))?;
        let deleted = futures_executor::block_on(admin.delete_records(&offsets, &options))?;
        deleted.elements().iter().try_for_each(|element| Ok(element.error()?))
    }

    /// Deletes a group without members, and with it its committed offsets, as a broker does after
    /// `offsets.retention.minutes`.
    pub fn delete_group(&self, group: &str) -> Result<()> {
        done(self.admin()?.delete_groups(&[group], &options()))
    }

    /// Sets the offsets of a group without members: `--to-latest`, or `--to-datetime` and a time.
    pub fn reset_offsets(&self, group: &str, topic: &str, to: &[&str]) -> Result<()> {
        let args = ["--group", group, "--topic", topic, "--reset-offsets", "--execute"];
        self.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", &[&args, to].concat())
    }

    /// Gives a user another password under SHA-512. The controller accepts it before brokers know of it; once they do, the one before
    /// lets nobody in any more.
    pub fn set_scram_password(&self, user: &str, password: &str) -> Result<()> {
        let added = format!("SCRAM-SHA-512=[password={password}]");
        let args = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", &added];
        self.tool("kafka.admin.ConfigCommand", &args)
    }

    /// Runs one of Kafka's own tools.
    fn tool(&self, class: &str, args: &[&str]) -> Result<()> {
        let mut tool = java()?;
        tool.args(["-XX:TieredStopAtLevel=1", class, "--bootstrap-server", &self.bootstrap]).args(args);
        let output = output(&mut tool)?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        // It also ends with 0 where it has done nothing.
        ensure!(output.status.success() && !said.contains("Error"), "{class} {}: {said}", args.join(" "));
        Ok(())
    }

    pub fn leader_of(&self, topic: &str, partition: i32) -> Result<i32> {
        let metadata = self.ask(UNCOMMITTED, |consumer| Ok(consumer.fetch_metadata(Some(topic), REQUEST_DEADLINE)?))?;
        let mut partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let leader = partitions.find(|found| found.id() == partition).map(|found| found.leader());
        leader.filter(|leader| *leader >= 0).with_context(|| format!("nobody leads {topic}/{partition}"))
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_DEADLINE)).operation_timeout(Some(REQUEST_DEADLINE))
}

/// Waits until all is done that was asked for.
fn done(asked: impl Future<Output = KafkaResult<Vec<TopicResult>>>) -> Result<()> {
    let refused = futures_executor::block_on(asked)?.into_iter().find_map(Result::err);
    refused.map_or(Ok(()), |(name, code)| Err(anyhow!("{name}: {code}")))
}
