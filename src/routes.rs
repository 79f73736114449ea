//! Where the offsets of routes are seen in Kafka; and how routes stand, for people: `GET /v1/routes`, the page and the metrics.

mod view;

use std::sync::{Arc, PoisonError, RwLock};

use weir_core::{
    arrivals::Waiting,
    pace::{Delivered, Lag},
    policy::Selection,
    route::{Route, WhenFull},
    time::Time,
};
use weir_kafka::{client::KafkaOptions, group_progress::GroupProgress};
use weir_worker::routes::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets};

pub use self::view::{RouteView, RoutesDesk};

/// The offsets of routes in Kafka.
pub struct KafkaRoutes(pub Arc<KafkaOptions>);

/// Those of one route. Calls of Kafka block.
struct KafkaRoute {
    /// The route's group.
    delivery: Option<Delivery>,
    /// The group of its lanes, and its topic of waiting intents.
    waiting: Option<(Arc<GroupProgress>, String)>,
}

struct Delivery {
    group: Arc<GroupProgress>,
    /// The route's approved topics.
    topics: Vec<String>,
    /// By topic, in their order, and partition.
    delivered: RwLock<Delivered<(usize, i32)>>,
}

impl LooksAtRoutes for KafkaRoutes {
    fn of(&self, route: &Route) -> Result<Arc<dyn RouteOffsets>, String> {
        let Self(kafka) = self;
        let progress = |group: &str| GroupProgress::new(kafka, group.to_owned()).map_err(|error| error.to_string());
        let delivery = match &route.consumer_group {
            Some(group) => Some(Delivery {
                group: progress(group)?,
                topics: approved_topics(kafka, &route.filter),
                delivered: RwLock::default(),
            }),
            None => None,
        };
        let waiting = match kafka.for_waiting(&route.name).filter(|_| route.when_full == WhenFull::Wait) {
            Some(options) => Some((progress(&options.group)?, options.intents)),
            None => None,
        };
        Ok(Arc::new(KafkaRoute { delivery, waiting }))
    }
}

impl RouteOffsets for KafkaRoute {
    fn look(self: Arc<Self>) -> Looking {
        Box::pin(async move {
            let look = tokio::task::spawn_blocking(move || Offsets { lag: self.lag(), waiting: self.waiting() });
            look.await.unwrap_or_else(|error| {
                let reason = format!("the look at the offsets ended early: {error}");
                Offsets { lag: Err(reason.clone()), waiting: Err(reason) }
            })
        })
    }

    fn waiting_since(self: Arc<Self>, time: Time) -> AskingBack {
        Box::pin(async move {
            let ask = tokio::task::spawn_blocking(move || {
                let Some((group, topic)) = &self.waiting else { return Ok(Vec::new()) };
                group.offsets_at(topic, time).map_err(|error| error.to_string())
            });
            ask.await.unwrap_or_else(|error| Err(format!("the look at the offsets ended early: {error}")))
        })
    }
}

impl KafkaRoute {
    fn lag(&self) -> Result<Option<Lag>, String> {
        let Some(Delivery { group, topics, delivered }) = &self.delivery else { return Ok(None) };
        let mut found = Vec::new();
        for (place, topic) in topics.iter().enumerate() {
            let partitions = group.lag(topic).map_err(|error| error.to_string())?;
            found.extend(partitions.into_iter().map(|(partition, lag)| ((place, partition), lag)));
        }
        Ok(Some(delivered.write().unwrap_or_else(PoisonError::into_inner).look(found)))
    }

    fn waiting(&self) -> Result<Vec<Waiting>, String> {
        let Some((group, topic)) = &self.waiting else { return Ok(Vec::new()) };
        group.standing(topic).map_err(|error| error.to_string())
    }
}

/// The approved topics of what a route or budget selects: those of its channels, or all where it names none.
#[must_use]
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
