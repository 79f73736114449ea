//! The routes of a worker: their topics, and the lanes of what waits for them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backon::Retryable as _;
use tokio_util::sync::CancellationToken;
use weir_core::{basis::current::Current, limit::route::WhenFull, policy::Policy};
use weir_kafka::{client::KafkaOptions, limits, new_topics::NewTopics, topics::TopicError, waiting_topics};
use weir_redis::RedisStore;
use weir_worker::{lane::Task, refresh::RefreshSource};

use super::{ask_kafka, patience, redis::OpenRedis};
use crate::{
    cli::{
        assemble,
        exit::UsageError,
        worker::{LaneEnds, WaitingEnds},
    },
    policy_source::{PolicySource, PolicySourceError},
};

/// How often it is looked for topics where something may wait for a route that the policy does not have.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A policy whose routes have their topics: one that needs a topic that is not there is rejected until it is.
pub(super) struct RoutedPolicy {
    pub(super) source: PolicySource,
    pub(super) kafka: Arc<KafkaOptions>,
    /// How a missing topic is made; `None`: it is not.
    pub(super) create: Option<NewTopics>,
    /// The policy that was read last, until its topics are there.
    read: Option<Arc<Policy>>,
}

/// Why a policy is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum RoutedPolicyError {
    /// It cannot be read, or is wrong.
    #[error("{0}")]
    Policy(#[from] PolicySourceError),
    /// The topics of its routes are not there, or may lose intents.
    #[error("the topics of the policy's routes: {0}")]
    Topics(#[from] TopicError),
}

impl RoutedPolicy {
    pub(super) const fn new(source: PolicySource, kafka: Arc<KafkaOptions>, create: Option<NewTopics>) -> Self {
        Self { source, kafka, create, read: None }
    }
}

impl RefreshSource for RoutedPolicy {
    type Value = Policy;
    type Error = RoutedPolicyError;

    const NAME: &'static str = PolicySource::NAME;

    fn version(value: &Policy) -> &str {
        PolicySource::version(value)
    }

    fn is_temporary(error: &RoutedPolicyError) -> bool {
        match error {
            RoutedPolicyError::Policy(error) => PolicySource::is_temporary(error),
            RoutedPolicyError::Topics(error) => matches!(error, TopicError::Unreachable { .. }),
        }
    }

    async fn load(&mut self) -> Result<Option<Arc<Policy>>, RoutedPolicyError> {
        if let Some(policy) = self.source.load().await? {
            self.read = Some(policy);
        }
        let Some(policy) = &self.read else { return Ok(None) };
        let waiting = policy.routes.iter().filter(|route| route.when_full == WhenFull::Wait);
        let waiting =
            waiting.filter_map(|route| Some((Arc::clone(&route.name), self.kafka.waiting_topic(&route.name)?)));
        let (names, topics): (Vec<Arc<str>>, Vec<String>) = waiting.unzip();
        if !topics.is_empty() {
            let partitions = waiting_topics::ready(&self.kafka, &topics, self.create).await?;
            for (name, partitions) in names.iter().zip(partitions) {
                self.kafka.routes.state(name).set_partitions(partitions);
            }
            limits::look_again(&self.kafka).await;
            waiting_topics::begin(&self.kafka, names).await?;
        }
        Ok(self.read.take())
    }
}

/// Makes sure that no intents wait in topics that `kafka.waiting` does not name any more.
async fn none_left_behind(kafka: &Arc<KafkaOptions>, redis: &OpenRedis) -> anyhow::Result<()> {
    let noted = redis.noted_topics().await?;
    let look = || {
        let noted = noted.clone();
        assemble::ask_kafka(kafka, move |kafka| waiting_topics::none_left_behind(kafka, &noted))
    };
    let found = look
        .retry(patience())
        .when(|error: &anyhow::Error| matches!(error.downcast_ref(), Some(TopicError::Unreachable { .. })))
        .await;
    found.map_err(|error| match error.downcast() {
        Ok(error @ TopicError::WaitElsewhere { .. }) => UsageError(error.to_string()).into(),
        Ok(error) => error.into(),
        Err(error) => error,
    })
}

/// Makes the ends of lanes that read what waits; `None`: nothing can wait.
pub(super) fn waiting_ends(kafka: &Arc<KafkaOptions>, redis: &Arc<OpenRedis>) -> Option<WaitingEnds<RedisStore>> {
    kafka.waiting.as_ref()?;
    let (kafka, redis) = (Arc::clone(kafka), Arc::clone(redis));
    Some(Box::new(move |route| {
        let topic = kafka.routes.state(route).topic;
        let options = kafka.for_waiting(route).unwrap_or_else(|| KafkaOptions::clone(&kafka));
        let commits = Some(redis.commits(&options.group));
        LaneEnds { task: Task::Waiting(topic), kafka: Arc::new(options), number: 0, commits, store: redis.store() }
    }))
}

/// The routes for which something may wait, whatever the policy says now. They are looked for again and again: another instance may have
/// had a policy that this one has never seen.
pub(super) async fn known(
    (kafka, redis): (&Arc<KafkaOptions>, &OpenRedis),
    stop: &CancellationToken,
) -> anyhow::Result<Arc<Current<BTreeSet<String>>>> {
    none_left_behind(kafka, redis).await?;
    let found = ask_kafka(kafka, |kafka| waiting_topics::routes(kafka, &BTreeSet::new())).await?;
    let known = Current::new(Arc::new(found));
    tokio::spawn(stop.clone().run_until_cancelled_owned(keep_looking(Arc::clone(kafka), Arc::clone(&known))));
    Ok(known)
}

async fn keep_looking(kafka: Arc<KafkaOptions>, known: Arc<Current<BTreeSet<String>>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let before = known.get();
        match assemble::ask_kafka(&kafka, move |kafka| waiting_topics::routes(kafka, &before)).await {
            Ok(found) => known.replace(Arc::new(found)),
            Err(error) => tracing::debug!("topics of waiting intents were not looked for: {error:#}"),
        }
    }
}
