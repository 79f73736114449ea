use weir_core::{basis::document::Format, policy::file::parse_policy};

use super::*;

#[test]
fn of_a_budget_that_cannot_be_read_more_may_be_used_than_its_new_limit() {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[budgets]]\nname = \"spring\"\nlimit = 50\ntotal = true\n";
    let budget = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap().budgets.remove(0);
    let silent = LimitView::of_silent(&budget, &BudgetId { name: "spring".into(), campaign: None }, Some(60));
    assert_eq!((silent.used, silent.left, silent.leased, silent.available), (Some(60), Some(0), None, false));
}
