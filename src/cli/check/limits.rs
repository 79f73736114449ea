//! The limits of the policy: what each allows, and what is wrong with the topics and groups that it goes by.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::{
    limit::{
        budget::{Budget, BudgetSpan},
        route::{Route, WhenFull, pace::PartitionLag},
    },
    policy::Policy,
};
use weir_kafka::{
    client::KafkaOptions,
    group_progress::GroupProgress,
    new_topics::NewTopics,
    topic_settings::{RETENTION_MS, TopicSettings},
    topics::TopicError,
    waiting_topics,
};

use super::report::{CheckReport, Finding};
use crate::{cli::assemble::ask_kafka, limits::limits_in_words, routes::approved_topics};

pub(super) fn waited_for(policy: &Policy) -> impl Iterator<Item = &Route> {
    policy.routes.iter().filter(|route| route.when_full == WhenFull::Wait)
}

/// Looks at the topics of waiting intents, and creates those that are missing where that is asked for. Gives those that are there.
pub(super) async fn waiting(
    options: &Arc<KafkaOptions>,
    policy: &Policy,
    create: Option<NewTopics>,
    report: &mut CheckReport,
) -> Vec<String> {
    let mut there = Vec::new();
    for route in waited_for(policy) {
        let Some(topic) = options.waiting_topic(&route.name) else { continue };
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
    there
}

/// Reports each limit, and what is wrong with what it goes by. The settings of topics are those that are known.
pub(super) async fn look(
    options: &Arc<KafkaOptions>,
    policy: &Policy,
    found: &BTreeMap<String, TopicSettings>,
    report: &mut CheckReport,
) {
    for limit in limits_in_words(policy) {
        report.add(Finding::Ok, "limits", limit);
    }
    for budget in &policy.budgets {
        let topics = approved_topics(options, &budget.selection);
        for wrong in topics.iter().filter_map(|topic| deletes_too_early(budget, topic, found.get(topic)?)) {
            report.add(Finding::Warning, "limits", format!("budget {}: {wrong}", budget.name));
        }
    }
    for (place, route) in policy.routes.iter().enumerate() {
        let mut say = |finding, words: String| report.add(finding, "limits", format!("route {}: {words}", route.name));
        if let Some(group) = &route.consumer_group {
            match lag(options, route, group).await {
                Ok(Some(lag)) => say(Finding::Ok, format!("the group {group} has {lag} approved records to deliver")),
                // A name that is written incorrectly looks like a group that has not begun.
                Ok(None) => say(
                    Finding::Warning,
                    format!(
                        "the group {group} has committed nothing of {}. If its consumers run, it has another name: set \
                         consumer_group to it. Until it commits, weir soon approves the route's floor alone",
                        approved_topics(options, &route.filter).join(", ")
                    ),
                ),
                Err(error) => say(Finding::Error, error.to_string()),
            }
        }
        for shares in policy.routes[..place].iter().filter_map(|other| shared(options, other, route)) {
            say(Finding::Warning, shares);
        }
    }
}

/// How many approved records of a route its group has not committed; `None` where it has committed nothing.
async fn lag(options: &Arc<KafkaOptions>, route: &Route, group: &Arc<str>) -> anyhow::Result<Option<u64>> {
    let (topics, group) = (approved_topics(options, &route.filter), group.to_string());
    let lags = ask_kafka(options, move |kafka| {
        let progress = GroupProgress::new(kafka, group)?;
        topics.iter().map(|topic| progress.lag(topic)).collect::<Result<Vec<Vec<(i32, PartitionLag)>>, TopicError>>()
    });
    let lags = lags.await?.concat();
    let has_begun = lags.iter().any(|(_, lag)| lag.committed.is_some());
    Ok(has_begun.then(|| lags.iter().map(|(_, lag)| lag.undelivered).sum()))
}

/// Two routes by lag on one topic are paced by what both of them approve, whatever their groups: each consumes the whole topic.
fn shared(options: &KafkaOptions, one: &Route, other: &Route) -> Option<String> {
    one.consumer_group.as_ref().and(other.consumer_group.as_ref())?;
    let topics = approved_topics(options, &other.filter);
    let topic = approved_topics(options, &one.filter).into_iter().find(|topic| topics.contains(topic))?;
    Some(format!(
        "the routes {} and {} share the lag of {topic}: a blast on one slows the other down. Give a channel its own topic in \
         [kafka.approved_by_channel]",
        one.name, other.name
    ))
}

/// What the topic has to keep, in milliseconds: in total all of it.
fn required_ms(span: &BudgetSpan) -> i64 {
    match span {
        BudgetSpan::Rolling { length_ms, .. } => *length_ms,
        BudgetSpan::Per(period) => period.longest_ms(),
        BudgetSpan::Total => i64::MAX,
    }
}

fn deletes_too_early(budget: &Budget, approved: &str, settings: &TopicSettings) -> Option<String> {
    let required_ms = required_ms(&budget.span);
    let short = settings.keeps_too_little(required_ms, "");
    if short.is_empty() {
        return None;
    }
    let found =
        short.iter().map(|wrong| format!("{} is {}", wrong.setting, wrong.value)).collect::<Vec<_>>().join(", ");
    let needed =
        |required: &str| if required_ms == i64::MAX { "-1 (keep all)".to_owned() } else { required.to_owned() };
    let needed = short.iter().map(|wrong| match wrong.setting {
        RETENTION_MS => format!("{}: {}", wrong.setting, needed(&wrong.must_be())),
        setting => format!("{setting}: {}", wrong.required),
    });
    let needed = needed.collect::<Vec<_>>().join(", ");
    Some(format!(
        "{approved} may delete records that it still counts: {found}. If Redis loses the budget, weir rebuild then leaves it closed \
         until --budget-used says what was used before. To have it counted, set {needed}"
    ))
}

#[cfg(test)]
mod tests {
    use weir_core::{basis::document::Format, policy::file::parse_policy};

    use super::*;

    fn message(span: &str, settings: &[(&str, &str)]) -> Option<String> {
        let budget = format!("[[budgets]]\nname = \"spring\"\nlimit = 10\n{span}\n");
        let text = format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n{budget}");
        let policy = parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap();
        deletes_too_early(&policy.budgets[0], "approved", &settings.iter().copied().collect())
    }

    #[test]
    fn a_budget_is_warned_of_whose_window_is_longer_than_the_topic_keeps_records() {
        let eight_days = [("retention.ms", "691200000"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];
        assert_eq!(message("window = \"8d\"", &eight_days), None);
        assert_eq!(message("per = \"week\"", &eight_days), None);
        assert!(message("window = \"9d\"", &eight_days).unwrap().ends_with("set retention.ms: 777600000 or more"));
        assert!(message("per = \"month\"", &eight_days).is_some());
        let total = message("total = true", &eight_days).unwrap();
        assert!(total.contains("--budget-used") && total.ends_with("set retention.ms: -1 (keep all)"), "{total}");

        let all = [("retention.ms", "-1"), ("retention.bytes", "-1")];
        assert_eq!(message("total = true", &all), None);
        let by_size = [("retention.ms", "-1"), ("retention.bytes", "1000000")];
        assert!(message("window = \"1d\"", &by_size).unwrap().ends_with("set retention.bytes: -1"));
    }
}
