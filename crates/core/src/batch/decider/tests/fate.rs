//! What became of an intent, for all that the gate and the store may say of it.

use super::*;
use crate::{
    history::decide::AdmitVerdict,
    policy::{
        Action,
        Mode::{self, Enforce, Shadow},
        Unavailable::{Approve, Suppress, Wait},
    },
};

/// What the store says of a request.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// This, at a time so many milliseconds from the batch's clock.
    Answer(AdmitVerdict, i64),
    /// Nothing.
    Nothing,
    /// Nothing, and it may have recorded the intent all the same.
    Unclear,
}

use Says::{Nothing, Unclear};

const ALLOWED: Says = Says::Answer(AdmitVerdict::Allowed, 1);
const DUPLICATE: Says = Says::Answer(AdmitVerdict::Duplicate, 1);
const DENIED: Says = Says::Answer(AdmitVerdict::Denied { cap: 0, used: 1, blocking: None }, 1);
/// Admitted when the budget's tokens were counted already, before that, and by this batch.
const COUNTED: Says = Says::Answer(AdmitVerdict::Replayed, -500);
const UNCOUNTED: Says = Says::Answer(AdmitVerdict::Replayed, -800);
const OWN: Says = Says::Answer(AdmitVerdict::Replayed, 0);

const REQUEST: RequestIndex = RequestIndex::next(&[]);
const QUIET: GateDenial = (GateReason::QuietHours, None);
const PRESSURE: GateReason = GateReason::Limit(SuppressReason::Pressure, Action::Suppress);
const CAPACITY: GateReason = GateReason::Limit(SuppressReason::Capacity, Action::Suppress);

fn caps(fallback: Unavailable) -> Disposition {
    Disposition::CheckCaps { request: REQUEST, cap_set: 1, shadowed: None, fallback }
}

/// In quiet hours, in shadow mode.
fn quiet(fallback: Unavailable) -> Disposition {
    Disposition::CheckCaps { request: REQUEST, cap_set: 1, shadowed: Some(QUIET), fallback }
}

fn denied(reason: GateReason) -> Disposition {
    Disposition::Suppress((reason, None))
}

fn look_up(reason: GateReason, fallback: Option<Unavailable>) -> Disposition {
    Disposition::LookUp { request: REQUEST, denial: (reason, None), fallback }
}

/// The verdict, how it counts and how many milliseconds from the batch's clock it was judged; then `is_approved` (its user is active),
/// `permits_of` (it uses a permit), `is_spent` and `is_recorded` (its tokens are gone, of a batch that is decided or judged again), `owed`
/// (it pays though it took nothing), `took` (it names its budgets), `waits` (it is deferred until the store answers), `waits_for_route`,
/// and `is_denied` (it is offered what comes back); and last what it is without an answer.
fn words(asked: AskedBatch<'_, Rows>) -> String {
    let (fate, without_answer) = (asked.fate(0), asked.lacking().next());
    let (decided, _) = asked.finish();
    let mut words = Vec::new();
    // No verdict is asked for while the store has to be waited for.
    let has_verdict = !matches!(fate, Fate::Unanswered { outcome: UnavailableOutcome::Wait, fallback: Some(_), .. });
    if has_verdict {
        let (verdict, at) = decided.ruling(0, now());
        let (word, counts) = match verdict {
            Verdict::Approved(counts) => ("approved", Some(counts)),
            Verdict::ShadowSuppressed(_, counts) => ("shadow", Some(counts)),
            Verdict::Suppressed(_) => ("suppressed", None),
        };
        words.push(word.to_owned());
        words.extend(verdict.suppressed().map(|why| why.reason().as_str().to_owned()));
        words.extend(counts.map(|counts| format!("{counts:?}")));
        words.push(format!("{:+}", at.millis() - now().millis()));
    }
    let yes = [
        ("is_approved", fate.is_approved()),
        ("permits_of", fate.uses_unit()),
        ("is_spent", fate.pays(now(), now().plus(-900)..now().plus(-600))),
        ("is_recorded", fate.is_recorded(now())),
        ("owed", fate.replayed_from().is_some_and(|at| at < now())),
        ("took", has_verdict && fate.took()),
        ("waits", fate.waits()),
        ("waits_for_route", fate.route() == Some(2)),
        ("is_denied", fate.is_limited()),
    ];
    words.extend(yes.into_iter().filter(|(_, yes)| *yes).map(|(word, _)| word.to_owned()));
    words.extend(without_answer.map(|(_, outcome)| format!("{outcome:?}")));
    words.join(" ")
}

fn check(mode: Mode, rows: &[(Disposition, Says, &str)]) {
    let decider = capped(&format!("shadow = {}\n", mode == Shadow));
    let records = Rows::of([r#"{"id":"1","user_id":"u"}"#.to_owned()]);
    let decoded = decider.decode(&records);
    for (disposition, says, expected) in rows {
        let batch = DecodedBatch { records: &records, decoded: &decoded };
        let mut asked = decider.begin(batch, Ground::at(now())).ask(None);
        assert_eq!(asked.fates.results[0].disposition, caps(Wait), "the one that the row replaces");
        let answer = match says {
            Says::Answer(verdict, ms) => Some(Answer { verdict: *verdict, at: now().plus(*ms), ahead: false }),
            Nothing | Unclear => None,
        };
        asked.fates.results[0].disposition = *disposition;
        asked.answer(vec![answer]);
        if matches!(says, Unclear) {
            asked.asked(&[REQUEST]);
        }
        assert_eq!(words(asked), *expected, "{mode:?} {disposition:?} {says:?}");
    }
}

/// The batch has no budgets, so their names are not known: a denial by one is reported as `unavailable`.
#[test]
fn what_the_store_is_not_asked_about_goes_by_the_gate() {
    let (undecided, bypass) = (Disposition::Undecided, |shadowed| Disposition::Bypass { shadowed });
    let rows = [
        // A dead letter has no permit, and a retry that has none is denied: this one is sent.
        (undecided, Nothing, "approved No +0 permits_of took"),
        (bypass(None), Nothing, "approved No +0 is_approved permits_of is_spent took"),
        (denied(GateReason::Stopped), Nothing, "suppressed stopped +0"),
        (denied(GateReason::Expired), Nothing, "suppressed expired +0"),
        (denied(GateReason::TooEarly), Nothing, "suppressed too_early +0"),
        (denied(GateReason::QuietHours), Nothing, "suppressed quiet_hours +0"),
        (denied(PRESSURE), Nothing, "suppressed pressure +0 is_denied"),
        (denied(CAPACITY), Nothing, "suppressed capacity +0 is_denied"),
        (denied(GateReason::RouteFull(2)), Nothing, "suppressed capacity +0 waits_for_route is_denied"),
        (denied(GateReason::Budget(0)), Nothing, "suppressed unavailable +0 is_denied"),
        (denied(GateReason::BudgetUnavailable), Nothing, "suppressed unavailable +0 is_denied"),
        (denied(GateReason::BudgetWaits), Nothing, "suppressed unavailable +0 waits is_denied"),
    ];
    check(Enforce, &rows);
    let rows = [
        (undecided, Nothing, "approved No +0 permits_of took"),
        (bypass(None), Nothing, "approved No +0 is_approved permits_of is_spent took"),
        (bypass(Some(QUIET)), Nothing, "shadow quiet_hours No +0 is_approved permits_of is_spent"),
    ];
    check(Shadow, &rows);
}

#[test]
fn what_is_looked_up_is_approved_only_if_it_was_approved_before() {
    let expired = |fallback| look_up(GateReason::Expired, fallback);
    let full = |fallback| look_up(GateReason::RouteFull(2), fallback);
    let spent = |fallback| look_up(GateReason::Budget(0), fallback);
    let rows = [
        (expired(None), Nothing, "suppressed expired +0 GivenUp"),
        (expired(Some(Wait)), Nothing, "suppressed expired +0 waits Wait"),
        (expired(Some(Approve)), Nothing, "suppressed expired +0 Suppressed"),
        (expired(Some(Suppress)), Nothing, "suppressed expired +0 Suppressed"),
        // It is asked for so that nothing is recorded.
        (expired(None), Unclear, "suppressed expired +0 GivenUp"),
        (expired(Some(Wait)), Unclear, "suppressed expired +0 waits Wait"),
        (expired(Some(Approve)), Unclear, "suppressed expired +0 Suppressed"),
        (expired(Some(Wait)), ALLOWED, "suppressed expired +0"),
        (expired(Some(Wait)), DUPLICATE, "suppressed expired +0"),
        (expired(Some(Wait)), DENIED, "suppressed expired +0"),
        (expired(Some(Wait)), COUNTED, "approved Yes -500 is_approved permits_of owed took"),
        (expired(None), UNCOUNTED, "approved Yes -800 is_approved permits_of owed took"),
        (expired(Some(Suppress)), OWN, "approved Yes +0 is_approved permits_of took"),
        (full(None), Nothing, "suppressed capacity +0 waits_for_route GivenUp"),
        (full(Some(Wait)), Nothing, "suppressed capacity +0 waits waits_for_route Wait"),
        (full(Some(Wait)), ALLOWED, "suppressed capacity +0 waits_for_route"),
        (full(Some(Wait)), DUPLICATE, "suppressed capacity +0 waits_for_route"),
        (full(Some(Wait)), DENIED, "suppressed capacity +0 waits_for_route is_denied"),
        (full(Some(Wait)), COUNTED, "approved Yes -500 is_approved permits_of owed took"),
        (spent(Some(Suppress)), Nothing, "suppressed unavailable +0 Suppressed"),
        (spent(Some(Suppress)), DUPLICATE, "suppressed unavailable +0"),
        (spent(Some(Suppress)), DENIED, "suppressed unavailable +0 is_denied"),
        (spent(Some(Suppress)), COUNTED, "approved Yes -500 is_approved permits_of owed took"),
        (look_up(PRESSURE, None), DENIED, "suppressed pressure +0 is_denied"),
        (look_up(CAPACITY, None), DENIED, "suppressed capacity +0 is_denied"),
    ];
    check(Enforce, &rows);
}

#[test]
fn what_the_store_decides_goes_by_its_answer_or_by_the_policy_without_one() {
    let rows = [
        (caps(Wait), Nothing, "waits Wait"),
        (caps(Wait), Unclear, "is_spent is_recorded waits Wait"),
        (caps(Approve), Nothing, "approved Later +0 is_approved permits_of is_spent took Approved"),
        (caps(Approve), Unclear, "approved Later +0 is_approved permits_of is_spent is_recorded took Approved"),
        (caps(Suppress), Nothing, "suppressed unavailable +0 Suppressed"),
        (caps(Suppress), Unclear, "suppressed unavailable +0 is_spent is_recorded Suppressed"),
        (caps(Wait), ALLOWED, "approved Yes +1 is_approved permits_of is_spent is_recorded took"),
        (caps(Approve), ALLOWED, "approved Yes +1 is_approved permits_of is_spent is_recorded took"),
        (caps(Suppress), ALLOWED, "approved Yes +1 is_approved permits_of is_spent is_recorded took"),
        (caps(Wait), DENIED, "suppressed cap +1 took"),
        (caps(Approve), DENIED, "suppressed cap +1 took"),
        (caps(Wait), DUPLICATE, "suppressed duplicate +1 took"),
        (caps(Approve), DUPLICATE, "suppressed duplicate +1 took"),
        (caps(Wait), COUNTED, "approved Yes -500 is_approved permits_of owed took"),
        (caps(Suppress), UNCOUNTED, "approved Yes -800 is_approved permits_of is_spent owed took"),
        (caps(Wait), OWN, "approved Yes +0 is_approved permits_of is_spent is_recorded took"),
    ];
    check(Enforce, &rows);
}

#[test]
fn in_shadow_mode_all_that_is_decided_is_approved() {
    let rows = [
        (caps(Wait), Nothing, "waits Wait"),
        (caps(Wait), Unclear, "is_spent is_recorded waits Wait"),
        (caps(Approve), Nothing, "approved Later +0 is_approved permits_of is_spent took Approved"),
        (caps(Approve), Unclear, "approved Later +0 is_approved permits_of is_spent is_recorded took Approved"),
        (caps(Suppress), Nothing, "shadow unavailable Later +0 is_approved permits_of is_spent Approved"),
        (caps(Suppress), Unclear, "shadow unavailable Later +0 is_approved permits_of is_spent is_recorded Approved"),
        (caps(Wait), ALLOWED, "approved Yes +1 is_approved permits_of is_spent is_recorded took"),
        (caps(Wait), DENIED, "shadow cap Yes +1 is_approved permits_of is_spent is_recorded took"),
        (caps(Wait), DUPLICATE, "shadow duplicate Yes +1 is_approved permits_of is_spent took"),
        (caps(Wait), COUNTED, "approved Yes -500 is_approved permits_of owed took"),
        (caps(Wait), UNCOUNTED, "approved Yes -800 is_approved permits_of is_spent owed took"),
        (caps(Wait), OWN, "approved Yes +0 is_approved permits_of is_spent is_recorded took"),
        (quiet(Wait), Nothing, "waits Wait"),
        (quiet(Approve), Nothing, "shadow quiet_hours Later +0 is_approved permits_of is_spent Approved"),
        (quiet(Approve), Unclear, "shadow quiet_hours Later +0 is_approved permits_of is_spent is_recorded Approved"),
        (quiet(Suppress), Nothing, "shadow quiet_hours Later +0 is_approved permits_of is_spent Approved"),
        (quiet(Suppress), Unclear, "shadow quiet_hours Later +0 is_approved permits_of is_spent is_recorded Approved"),
        (quiet(Wait), ALLOWED, "shadow quiet_hours Yes +1 is_approved permits_of is_spent is_recorded"),
        (quiet(Wait), DENIED, "shadow quiet_hours Yes +1 is_approved permits_of is_spent is_recorded"),
        (quiet(Wait), DUPLICATE, "shadow quiet_hours Yes +1 is_approved permits_of is_spent"),
        (quiet(Wait), COUNTED, "shadow quiet_hours Yes -500 is_approved permits_of owed"),
        (quiet(Wait), UNCOUNTED, "shadow quiet_hours Yes -800 is_approved permits_of is_spent owed"),
        (quiet(Wait), OWN, "shadow quiet_hours Yes +0 is_approved permits_of is_spent is_recorded"),
    ];
    check(Shadow, &rows);
}

#[test]
fn a_replay_pays_nothing_unless_it_is_of_the_same_admission_or_not_counted_in_its_window() {
    let (begin, before) = (now().plus(-900), now().plus(-500));
    for (at, spent) in [
        (begin.plus(-1), false),
        (begin, true),
        (before.plus(-1), true),
        (before, false),
        (now().plus(-1), false),
        (now(), true),
        (now().plus(1), true),
    ] {
        let fate = Fate::Approved(Approval::Replayed(at), None);
        assert_eq!(fate.pays(now(), begin..before), spent, "{at:?}");
        assert_eq!(fate.is_recorded(now()), at >= now(), "where the batch is judged again, it claims again: {at:?}");
    }
}
