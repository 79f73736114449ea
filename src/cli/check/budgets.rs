//! Whether the approved topics keep what a lost budget would be counted from.

use std::collections::BTreeMap;

use weir_core::{
    budget::{Budget, BudgetSpan},
    policy::Policy,
};
use weir_kafka::{client::KafkaOptions, topic_settings::TopicSettings};

use super::report::{CheckReport, Finding};
use crate::routes::approved_topics;

/// Warns of each budget that counts approvals which an approved topic may have deleted.
pub(super) fn retention(
    policy: &Policy,
    options: &KafkaOptions,
    found: &BTreeMap<String, TopicSettings>,
    report: &mut CheckReport,
) {
    for budget in &policy.budgets {
        for topic in approved_topics(options, &budget.selection) {
            let message = found.get(&topic).and_then(|settings| deletes_too_early(budget, &topic, settings));
            message.into_iter().for_each(|message| report.add(Finding::Warning, "kafka", message));
        }
    }
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
        weir_kafka::topic_settings::RETENTION_MS => format!("{}: {}", wrong.setting, needed(&wrong.must_be())),
        setting => format!("{setting}: {}", wrong.required),
    });
    let needed = needed.collect::<Vec<_>>().join(", ");
    let (name, span) = (&budget.name, &budget.span);
    Some(format!(
        "{approved} may delete records that budget {name} ({span}) still counts: {found}. If Redis loses the budget, weir \
         rebuild then leaves it closed until --budget-used says what was used before. To have it counted, set {needed}"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_core::{
        budget::WhenUnavailable,
        decide::Scope,
        policy::{Action, Period, Selection},
    };

    use super::*;

    fn message(span: BudgetSpan, settings: &[(&str, &str)]) -> Option<String> {
        let budget = Budget {
            name: "spring".into(),
            selection: Selection::default(),
            scope: Scope::Every,
            limit: 10,
            span,
            best_effort: false,
            when_spent: Action::Suppress,
            on_unavailable: WhenUnavailable::Wait,
        };
        deletes_too_early(&budget, "approved", &settings.iter().copied().collect())
    }

    #[test]
    fn a_budget_is_named_whose_window_is_longer_than_the_topic_keeps_records() {
        const DAY_MS: i64 = 86_400_000;
        let rolling = |days: i64| BudgetSpan::Rolling { length_ms: days * DAY_MS, text: Arc::from("x") };
        let eight_days = [("retention.ms", "691200000"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];
        assert_eq!(message(rolling(8), &eight_days), None);
        assert_eq!(message(BudgetSpan::Per(Period::Week), &eight_days), None);
        assert!(message(rolling(9), &eight_days).unwrap().ends_with("set retention.ms: 777600000 or more"));
        assert!(message(BudgetSpan::Per(Period::Month), &eight_days).unwrap().contains("(per month)"));
        let total = message(BudgetSpan::Total, &eight_days).unwrap();
        assert!(total.contains("--budget-used") && total.ends_with("set retention.ms: -1 (keep all)"), "{total}");

        let all = [("retention.ms", "-1"), ("retention.bytes", "-1")];
        assert_eq!(message(BudgetSpan::Total, &all), None);
        let by_size = [("retention.ms", "-1"), ("retention.bytes", "1000000")];
        assert!(message(rolling(1), &by_size).unwrap().ends_with("set retention.bytes: -1"));
    }
}
