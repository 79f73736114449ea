use weir_core::{basis::document::Format, policy::file::parse_policy};

use super::*;

#[test]
fn a_budget_says_why_it_lacks_what_it_was_asked_for_and_when_it_has_it() {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[budgets]]\nname = \"spring\"\nlimit = 50\ntotal = true\n";
    let budget = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap().budgets.remove(0);
    let (id, now) = (BudgetId { name: "spring".into(), campaign: None }, Time::default());
    let says = |free_in_ms| {
        let answer = TakeAnswer { used: 48, leased: 3, free_in_ms, ..TakeAnswer::default() };
        let view = LimitView::of_budget(&budget, &id, &answer, now);
        assert_eq!((view.used, view.left, view.leased, view.available), (Some(48), Some(2), Some(3), true));
        (view.why, view.free_at)
    };
    let why = |why: &str| Some(why.to_owned());
    assert_eq!(says(Some(0)), (None, None));
    assert_eq!(says(Some(5_000)), (why("too little is left"), Some(now.plus(5_000))));
    assert_eq!(says(None), (why("too little is left, and it never frees"), None));
    let silent = LimitView::of_silent(&budget, &id, Some(60));
    assert_eq!((silent.used, silent.left, silent.leased, silent.available), (Some(60), Some(0), None, false));
}
