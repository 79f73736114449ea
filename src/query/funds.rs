//! How a query goes about budgets: it takes tokens, or looks at what is left.

use std::{sync::Arc, time::Duration};

use weir_core::{
    batch::{
        decider::{AskedBatch, GatedBatch},
        record::Records,
    },
    limit::budget::{
        lease::{Answers, Claim, Funded, Outcome, Spent, Want},
        ledger::TakeAnswer,
    },
};
use weir_worker::budgets::Claimant;

use crate::limits::{LimitView, Looked, LooksAtLedger, budgets_of};

pub(super) enum Funds {
    Take(Claimant),
    Look(Arc<dyn LooksAtLedger>),
}

/// Looks at what an intent needs of budgets; with how they stand.
pub(super) async fn look<'b, R: Records>(
    gated: GatedBatch<'b, R>,
    ledger: &dyn LooksAtLedger,
) -> (AskedBatch<'b, R>, Vec<LimitView>) {
    let Some(claim) = gated.claim().map(Arc::clone) else { return (gated.ask(None), Vec::new()) };
    let cost = claim.wants.first().map_or(1, |want| u64::from(want.cost));
    let looked = ledger.look(&claim.budgets, cost).await;
    let views = budgets_of(gated.policy(), &claim.budgets, &looked, gated.now());
    let answers = answers(&claim, &looked);
    (gated.ask(Some(Funded::looked_at(claim, answers))), views)
}

/// What the ledger would answer the intents of a claim, if no instance held tokens. A budget that cannot be looked at denies none.
fn answers(claim: &Claim, looked: &Looked) -> Answers {
    let spent = |answer: &Option<TakeAnswer>| {
        let TakeAnswer { used, free_in_ms, .. } = (*answer)?;
        let wait = |wait_ms: i64| claim.judged_at + Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
        (free_in_ms != Some(0)).then(|| Spent { used, free_at: free_in_ms.map(wait) })
    };
    let spent: Vec<Option<Spent>> = looked.answers.iter().map(spent).collect();
    let outcome = |want: &Want| {
        let set = usize::try_from(want.set).ok().and_then(|set| claim.sets.get(set));
        let denying = set.into_iter().flatten().filter_map(|place| Some((*place, spent[*place as usize]?)));
        // The one that frees last, if ever.
        let last = denying.max_by_key(|(_, spent)| spent.free_at.unwrap_or(Duration::MAX));
        last.map_or(Outcome::Granted, |(place, _)| Outcome::Denied(place))
    };
    let (outcomes, leases) = (claim.wants.iter().map(outcome).collect(), vec![None; claim.budgets.len()]);
    let counted_for_ms = vec![None; claim.budgets.len()];
    Answers { outcomes, spent, leases, counted_for_ms }
}

#[cfg(test)]
mod tests {
    use weir_core::limit::budget::{BudgetId, SpanNow, lease::BudgetUse};

    use super::*;

    #[test]
    fn of_several_budgets_that_are_spent_the_one_that_frees_last_denies_and_one_that_cannot_be_read_does_not() {
        let used = |name: &str| BudgetUse {
            id: BudgetId { name: name.into(), campaign: None },
            limit: 10,
            span: SpanNow::Total,
            best_effort: true,
            unavailable_after: None,
        };
        let wants = [vec![0, 1], vec![1, 2], vec![0, 4], vec![4], vec![0, 3]];
        let claim = Claim {
            judged_at: Duration::from_secs(100),
            budgets: ["soon", "late", "never", "left", "unread"].map(used).to_vec(),
            wants: (0..5).map(|set| Want { set, cost: 3 }).collect(),
            sets: wants.to_vec(),
        };
        let answer = |free_in_ms| Some(TakeAnswer { used: 9, free_in_ms, ..TakeAnswer::default() });
        let looked = Looked {
            answers: vec![answer(Some(1_000)), answer(Some(2_000)), answer(None), answer(Some(0)), None],
            error: Some("a shard does not answer".to_owned()),
        };
        let found = answers(&claim, &looked);
        let denied = Outcome::Denied;
        assert_eq!(found.outcomes, [denied(1), denied(2), denied(0), Outcome::Granted, denied(0)]);
        let spent = |free_at| Some(Spent { used: 9, free_at });
        let after = |seconds| spent(Some(Duration::from_secs(seconds)));
        assert_eq!(found.spent, [after(101), after(102), spent(None), None, None]);
        assert_eq!(found.leases, [None; 5]);
    }
}
