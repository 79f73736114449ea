//! Where the offsets of routes are seen in Kafka.

use std::sync::Arc;

use weir_core::{
    basis::time::Time,
    limit::route::{
        Route, Waiting, WhenFull,
        pace::{Delivered, PartitionLag},
    },
    policy::Selection,
};
use weir_kafka::{client::KafkaOptions, group_progress::GroupProgress};
use weir_worker::routes::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets, RoutePartition};

/// The offsets of routes in Kafka.
pub struct KafkaRoutes(pub Arc<KafkaOptions>);

struct KafkaRoute {
    asked: Arc<RouteGroups>,
    delivered: Delivered<RoutePartition>,
}

/// What Kafka is asked for. Its calls block.
struct RouteGroups {
    /// The route's group, and its approved topics.
    delivery: Option<(Arc<GroupProgress>, Vec<Arc<str>>)>,
    /// The group of its lanes, and its topic of waiting intents.
    waiting: Option<(Arc<GroupProgress>, String)>,
}

impl LooksAtRoutes for KafkaRoutes {
    fn of(&self, route: &Route) -> Result<Box<dyn RouteOffsets>, String> {
        let Self(kafka) = self;
        let progress = |group: &str| GroupProgress::new(kafka, group.to_owned()).map_err(|error| error.to_string());
        let delivery = match &route.consumer_group {
            Some(group) => {
                let topics = approved_topics(kafka, &route.filter).into_iter();
                Some((progress(group)?, topics.map(Arc::<str>::from).collect()))
            }
            None => None,
        };
        let waiting = match kafka.for_waiting(&route.name).filter(|_| route.when_full == WhenFull::Wait) {
            Some(options) => Some((progress(&options.group)?, options.intents)),
            None => None,
        };
        let asked = Arc::new(RouteGroups { delivery, waiting });
        Ok(Box::new(KafkaRoute { asked, delivered: Delivered::default() }))
    }
}

impl RouteOffsets for KafkaRoute {
    fn look(&mut self) -> Looking<'_> {
        Box::pin(async move {
            let asked = Arc::clone(&self.asked);
            let look = tokio::task::spawn_blocking(move || (asked.lags(), asked.waiting()));
            let (lags, waiting) = look.await.unwrap_or_else(|error| {
                let reason = format!("the look at the offsets ended early: {error}");
                (Err(reason.clone()), Err(reason))
            });
            let mut behind = Vec::new();
            let lag = lags.map(|lags| {
                let look = self.delivered.look(lags?);
                behind = look.behind;
                Some(look.lag)
            });
            Offsets { lag, behind, waiting }
        })
    }

    fn waiting_since(&mut self, time: Time) -> AskingBack {
        let asked = Arc::clone(&self.asked);
        Box::pin(async move {
            let ask = tokio::task::spawn_blocking(move || {
                let Some((group, topic)) = &asked.waiting else { return Ok(Vec::new()) };
                group.offsets_at(topic, time).map_err(|error| error.to_string())
            });
            ask.await.unwrap_or_else(|error| Err(format!("the look at the offsets ended early: {error}")))
        })
    }
}

impl RouteGroups {
    /// How far the route's group is in each partition; `None`: it has no group.
    fn lags(&self) -> Result<Option<Vec<(RoutePartition, PartitionLag)>>, String> {
        let Some((group, topics)) = &self.delivery else { return Ok(None) };
        let mut found = Vec::new();
        for topic in topics {
            let partitions = group.lag(topic).map_err(|error| error.to_string())?;
            found.extend(partitions.into_iter().map(|(partition, lag)| ((Arc::clone(topic), partition), lag)));
        }
        Ok(Some(found))
    }

    fn waiting(&self) -> Result<Vec<Waiting>, String> {
        let Some((group, topic)) = &self.waiting else { return Ok(Vec::new()) };
        group.standing(topic).map_err(|error| error.to_string())
    }
}

/// The approved topics of what a route or budget selects: those of its channels, or all where it names none.
pub fn approved_topics(kafka: &KafkaOptions, selection: &Selection) -> Vec<String> {
    let topic = |channel: &String| kafka.approved_by_channel.get(channel).unwrap_or(&kafka.approved).clone();
    let mut topics: Vec<String> = match &selection.filter.channels {
        Some(channels) => channels.iter().map(topic).collect(),
        None => kafka.approved_topics().into_iter().map(str::to_owned).collect(),
    };
    topics.sort_unstable();
    topics.dedup();
    topics
}
