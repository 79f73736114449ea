//! The routes of the policy: their topics of waiting intents, and whether the lag of their groups can be seen.

use std::sync::Arc;

use weir_core::{
    pace::PartitionLag,
    policy::Policy,
    route::{Route, WhenFull},
};
use weir_kafka::{
    client::KafkaOptions, group_progress::GroupProgress, new_topics::NewTopics, topics::TopicError, waiting_topics,
};

use super::{
    Missing,
    report::{CheckReport, Finding},
};
use crate::routes::approved_topics;

/// The routes that intents wait for.
pub(super) fn waited_for(policy: &Policy) -> impl Iterator<Item = &Route> {
    policy.routes.iter().filter(|route| route.when_full == WhenFull::Wait)
}

/// Looks at the topics and groups of all routes, and creates the topics that are missing where that is asked for. Gives the topics of
/// waiting intents that are there.
pub(super) async fn look(
    options: &Arc<KafkaOptions>,
    policy: &Policy,
    (missing, new): (Missing, NewTopics),
    report: &mut CheckReport,
) -> Vec<String> {
    let mut there = Vec::new();
    for route in waited_for(policy) {
        let Some(topic) = options.waiting_topic(&route.name) else { continue };
        let create = (missing == Missing::Create).then_some(new);
        match waiting_topics::ready(options, std::slice::from_ref(&topic), create).await {
            Ok(partitions) => {
                let partitions = partitions.first().copied().unwrap_or_default();
                report.add(Finding::Ok, "kafka", format!("{topic}: {partitions} partitions"));
                there.push(topic);
            }
            Err(error) => {
                report.add(Finding::Error, "kafka", error.to_string());
                if matches!(error, TopicError::Keeps { .. }) {
                    there.push(topic);
                }
            }
        }
    }
    for route in &policy.routes {
        if let Some(group) = &route.consumer_group {
            lag(options, route, group, report).await;
        }
    }
    for (place, route) in policy.routes.iter().enumerate() {
        for other in &policy.routes[..place] {
            shared(options, (other, route), report);
        }
    }
    there
}

/// Whether the lag of a route's group can be seen.
async fn lag(options: &Arc<KafkaOptions>, route: &Route, group: &str, report: &mut CheckReport) {
    let topics = approved_topics(options, &route.filter);
    let (kafka, asked_topics, group_name) = (Arc::clone(options), topics.clone(), group.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let progress = GroupProgress::new(&kafka, group_name)?;
        let lags = asked_topics.iter().map(|topic| progress.lag(topic));
        lags.collect::<Result<Vec<Vec<(i32, PartitionLag)>>, TopicError>>().map(|lags| lags.concat())
    });
    match asked.await {
        // A name that is written incorrectly looks like a group that has not begun.
        Ok(Ok(lags)) if lags.iter().all(|(_, lag)| lag.committed.is_none()) => {
            let message = format!(
                "the route {}: the group {group} has committed nothing of {}. If its consumers run, it has another name: set \
                 consumer_group to it. Until it commits, weir soon approves the route's floor alone",
                route.name,
                topics.join(", ")
            );
            report.add(Finding::Warning, "kafka", message);
        }
        Ok(Ok(lags)) => {
            let undelivered = lags.iter().map(|(_, lag)| lag.undelivered).sum::<u64>();
            let message =
                format!("the route {}: the group {group} has {undelivered} approved records to deliver", route.name);
            report.add(Finding::Ok, "kafka", message);
        }
        Ok(Err(error)) => {
            report.add(Finding::Error, "kafka", format!("the route {}: {error}", route.name));
        }
        Err(error) => report.add(Finding::Error, "kafka", format!("the route {}: {error}", route.name)),
    }
}

/// Two routes by lag on one topic are paced by what both of them approve, whatever their groups: each consumes the whole topic.
fn shared(options: &KafkaOptions, (one, other): (&Route, &Route), report: &mut CheckReport) {
    if one.consumer_group.is_none() || other.consumer_group.is_none() {
        return;
    }
    let topics = approved_topics(options, &other.filter);
    if let Some(topic) = approved_topics(options, &one.filter).into_iter().find(|topic| topics.contains(topic)) {
        let message = format!(
            "the routes {} and {} share the lag of {topic}: a blast on one slows the other down. Give a channel its own topic in \
             [kafka.approved_by_channel]",
            one.name, other.name
        );
        report.add(Finding::Warning, "kafka", message);
    }
}
