//! The budgets that `--budget`, `--budget-used` and `--new-campaigns` name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use weir_core::{history::decide::Scope, intent::class::table_name, limit::budget::BudgetId, policy::Policy};

use super::args::BudgetUsed;
use crate::cli::exit::UsageError;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedBudgets {
    asked: BTreeSet<BudgetId>,
    /// To be counted again for each campaign.
    pub(super) all_campaigns: BTreeSet<Arc<str>>,
    /// What was used before the approved topic begins.
    used: BTreeMap<BudgetId, u64>,
    /// Whose unknown campaigns have used nothing.
    pub(super) new_campaigns: BTreeSet<Arc<str>>,
}

impl NamedBudgets {
    pub(super) fn find(
        asked: &[String],
        used: &[BudgetUsed],
        new_campaigns: &[String],
        policy: &Policy,
    ) -> Result<Self, UsageError> {
        let mut named = Self::default();
        for text in asked {
            match find(text, policy)? {
                NamedBudget::One(id) => drop(named.asked.insert(id)),
                NamedBudget::AllCampaigns(name) => drop(named.all_campaigns.insert(name)),
            }
        }
        for BudgetUsed { budget, tokens } in used {
            let message = match find(budget, policy)? {
                NamedBudget::AllCampaigns(name) => format!(
                    "--budget-used {budget}: each campaign has a budget {name} of its own: write {name}/CAMPAIGN={tokens}"
                ),
                NamedBudget::One(id) if named.used.insert(id.clone(), *tokens).is_none() => continue,
                NamedBudget::One(_) => format!("--budget-used {budget} is given twice: give the sum once"),
            };
            return Err(UsageError(message));
        }
        for text in new_campaigns {
            let NamedBudget::AllCampaigns(name) = find(text, policy)? else {
                return Err(UsageError(format!(
                    "--new-campaigns {text}: it is for a budget with each = \"campaign\", without a campaign behind its name: \
                     write --budget-used {text}=0"
                )));
            };
            named.new_campaigns.insert(name);
        }
        Ok(named)
    }

    /// Those that can be named so.
    pub(super) fn ids(&self) -> impl Iterator<Item = &BudgetId> {
        self.asked.iter().chain(self.used.keys())
    }

    pub(super) fn is_asked(&self, id: &BudgetId) -> bool {
        self.is_named(id) || self.all_campaigns.contains(&id.name)
    }

    /// Whether it is to be counted again by its own name, and not as one of all campaigns.
    pub(super) fn is_named(&self, id: &BudgetId) -> bool {
        self.asked.contains(id)
    }

    pub(super) fn used(&self, id: &BudgetId) -> Option<u64> {
        self.used.get(id).copied()
    }
}

enum NamedBudget {
    One(BudgetId),
    AllCampaigns(Arc<str>),
}

fn find(text: &str, policy: &Policy) -> Result<NamedBudget, UsageError> {
    for budget in &policy.budgets {
        let name = Arc::clone(&budget.name);
        match (text.strip_prefix(&*budget.name), budget.scope) {
            (Some(""), Scope::Every) => return Ok(NamedBudget::One(BudgetId { name, campaign: None })),
            (Some(""), Scope::SameCampaign) => return Ok(NamedBudget::AllCampaigns(name)),
            (Some(rest), Scope::SameCampaign) if rest.len() > 1 && rest.starts_with('/') => {
                let campaign = Some(table_name(&rest[1..]).into());
                return Ok(NamedBudget::One(BudgetId { name, campaign }));
            }
            (Some(_) | None, Scope::Every | Scope::SameCampaign) => {}
        }
    }
    let names: Vec<&str> = policy.budgets.iter().map(|budget| &*budget.name).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(UsageError(format!("the policy has no budget {text:?}; it has: {names}")))
}

/// The commands that open a budget, or count it again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Command {
    Again,
    /// What was used before is added to what was counted.
    UsedBefore,
    Both,
}

impl Command {
    pub(super) fn of(self, id: &BudgetId) -> String {
        let name = in_arguments(id);
        match self {
            Self::Again => format!("weir rebuild --budget {name}"),
            Self::UsedBefore => format!("weir rebuild --budget-used {name}=N"),
            Self::Both => format!("weir rebuild --budget {name} --budget-used {name}=N"),
        }
    }
}

/// The commands that open a budget for unknown campaigns.
pub(super) fn for_unknown(name: &Arc<str>) -> String {
    let id = |campaign: Option<&str>| BudgetId { name: Arc::clone(name), campaign: campaign.map(Into::into) };
    format!(
        "{} for each that has used some, then weir rebuild --new-campaigns {}",
        Command::UsedBefore.of(&id(Some("CAMPAIGN"))),
        in_arguments(&id(None))
    )
}

/// A budget as the arguments name it, quoted for a shell.
pub(super) fn in_arguments(id: &BudgetId) -> String {
    let text = match &id.campaign {
        None => id.name.to_string(),
        Some(campaign) => format!("{}/{campaign}", id.name),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use weir_core::{
        basis::document::Format,
        history::HistoryBounds,
        policy::file::{PolicyBounds, parse_policy},
    };

    use super::*;

    fn policy() -> Policy {
        let text = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n\
                    [[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\n\
                    [[budgets]]\nname = \"money\"\neach = \"campaign\"\nlimit = 5\ntotal = true\n";
        let history = HistoryBounds { retention_ms: 691_200_000, max_entries: 1_000 };
        parse_policy("policy.toml", text, Format::Toml, PolicyBounds { history, may_defer: false, may_wait: false })
            .unwrap()
    }

    fn id(name: &str, campaign: Option<&str>) -> BudgetId {
        BudgetId { name: name.into(), campaign: campaign.map(Into::into) }
    }

    fn used(budget: &str, tokens: u64) -> BudgetUsed {
        BudgetUsed { budget: budget.to_owned(), tokens }
    }

    #[test]
    fn budgets_are_found_by_name_and_campaign() {
        let asked = ["spring".to_owned(), "money/a/b".to_owned(), "money".to_owned()];
        let named = NamedBudgets::find(&asked, &[used("money/x=y", 3)], &["money".to_owned()], &policy()).unwrap();
        assert!(named.is_named(&id("spring", None)) && named.is_named(&id("money", Some("a/b"))));
        assert!(named.is_asked(&id("money", Some("other"))) && !named.is_named(&id("money", Some("other"))));
        assert_eq!((named.used(&id("money", Some("x=y"))), named.used(&id("spring", None))), (Some(3), None));
        assert!(named.new_campaigns.len() == 1 && named.new_campaigns.contains("money"));

        let wrong =
            |asked: &[String], used: &[BudgetUsed]| NamedBudgets::find(asked, used, &[], &policy()).unwrap_err().0;
        for text in ["autumn", "spring/may", "money/", "sprin", ""] {
            assert!(wrong(&[text.to_owned()], &[]).contains("it has: spring, money"), "{text}");
        }
        assert!(wrong(&[], &[used("money", 1)]).contains("money/CAMPAIGN=1"));
        assert!(wrong(&[], &[used("spring", 1), used("spring", 2)]).contains("twice"));
        let cases = [("spring", "--budget-used spring=0"), ("money/a", "money/a=0"), ("none", "it has: spring")];
        for (text, part) in cases {
            let error = NamedBudgets::find(&[], &[], &[text.to_owned()], &policy()).unwrap_err().0;
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_shell_reads_a_budget_as_it_is_named() {
        assert_eq!(in_arguments(&id("spring", None)), "spring");
        assert_eq!(in_arguments(&id("money", Some("may"))), "money/may");
        assert_eq!(in_arguments(&id("money", Some("it's may"))), r"'money/it'\''s may'");
        let runs = "weir rebuild --budget-used 'my money/CAMPAIGN'=N for each that has used some, then weir rebuild --new-campaigns \
                    'my money'";
        assert_eq!(for_unknown(&"my money".into()), runs);
    }
}
