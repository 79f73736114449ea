mod budgets;
mod capacity;
mod fate;
mod kept;
mod offer;
mod pressure;
mod settlement;
mod units;

use std::{sync::mpsc, time::Duration};

use super::*;
use crate::{
    basis::{shard::UserHash, time::Time},
    batch::{
        output::{Grounds, Ruled},
        record::{Destination, ReadBefore},
        tests::{Row, Rows},
    },
    decision::{
        decision_header, envelope,
        room::{HEADER_BYTES, RECORD_BYTES},
        verdict::{Cause, Counts, Decision, DenyingBudget, SuppressReason, Suppressed, Verdict},
    },
    deferral::DeferReason,
    history::{HistoryBounds, decide::Answer},
    limit::{
        budget::{
            lease::{Answers, Claim, Claimed, Funded, Leases, Lender, Outcome, Owed, Settling, Ticket, Unspent},
            ledger::TakeAnswer,
        },
        pressure::Pressure,
        route::routes::Routes,
        share::TurnNumber,
    },
    policy::GateReason,
    ports::embedded::EmbeddedStore,
    segment::UserIdKind,
};

const PATIENCE: Patience = Patience { unavailable_after: None, may_defer: false, replays_pay: true };
/// The monotonic clock.
const PASSED: Duration = Duration::from_secs(100);

fn now() -> Time {
    Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap()
}

impl Decider {
    pub(crate) fn of(policy: Policy) -> Self {
        let segments = Arc::new(SegmentSet::of(UserIdKind::U32, &[]));
        Self::new("intents", Current::new(segments), Current::new(Arc::new(policy)))
    }
}

fn decider(more: &str) -> Decider {
    Decider::of(Policy::uncapped(more))
}

/// One per user.
fn capped(more: &str) -> Decider {
    Decider::of(Policy::once(more))
}

fn store() -> EmbeddedStore {
    EmbeddedStore::new(HistoryBounds { retention_ms: 86_400_000, max_entries: 100 })
}

/// A process that knows who is active.
fn pressed_by(pressure: &Arc<Pressure>) -> HeldLimits {
    HeldLimits { pressure: Some(Arc::clone(pressure)), ..HeldLimits::default() }
}

/// A process that has routes.
fn routed(routes: Arc<Routes>) -> HeldLimits {
    HeldLimits { routes: Some(routes), ..HeldLimits::default() }
}

fn intent() -> Intent<'static> {
    decode(Some(br#"{"id":"i","user_id":"u"}"#), [], &FieldMap::default()).unwrap()
}

impl Ground<'static> {
    /// A batch that takes from the pools, asks no budgets, and was not read before.
    pub(crate) fn at(now: Time) -> Self {
        let (passed, read_before) = (Duration::ZERO, ReadBefore::none());
        Self { times: Times::One(now), passed, read_before, takes: Takes::FromPools, budgets: None }
    }
}

/// A batch of now that asks budgets.
fn asking() -> Ground<'static> {
    Ground { passed: PASSED, budgets: Some(PATIENCE), ..Ground::at(now()) }
}

/// What came back of a batch, and what its replays owe.
struct Heard {
    back: mpsc::Receiver<Unspent>,
    owed: mpsc::Receiver<Vec<Owed>>,
}

impl Heard {
    /// How many tokens came back since this was asked last.
    fn back(&self) -> u64 {
        self.back.try_iter().flatten().map(|(.., tokens)| tokens).sum()
    }

    /// How many are owed since.
    fn owed(&self) -> u64 {
        self.owed.try_iter().flatten().map(|owed| owed.tokens).sum()
    }
}

/// Who has granted the tokens of a batch, and where it is heard what becomes of them.
fn granter() -> (Lender, Heard) {
    let ((back, back_heard), (owed, owed_heard)) = (mpsc::channel(), mpsc::channel());
    let granter: Lender = Arc::new(move |settling| match settling {
        // Nobody may listen.
        Settling::Unspent(tokens) => drop(back.send(tokens)),
        Settling::Owed(owes) => drop(owed.send(owes)),
    });
    (granter, Heard { back: back_heard, owed: owed_heard })
}

/// A batch with these answers to its claim.
fn funded<'b, R: Records>(gated: GatedBatch<'b, R>, answers: Answers) -> (AskedBatch<'b, R>, Heard) {
    let ((granter, heard), claim) = (granter(), Arc::clone(gated.claim().unwrap()));
    (gated.ask(Some(Funded::new(claim, answers, granter))), heard)
}

/// The answers to a claim of one budget.
fn with_outcomes(outcomes: Vec<Outcome>, counted_for_ms: Option<i64>) -> Answers {
    Answers { outcomes, spent: vec![None], leases: vec![None], counted_for_ms: vec![counted_for_ms] }
}

/// What the first turn at a budget follows.
fn first_run() -> TurnNumber {
    TurnNumber { run: 1, number: 0 }
}

/// The answers to a claim of a budget that has so many tokens left, of a ledger that has no more.
fn granted(claim: &Claim, left: u64) -> Answers {
    let (mut leases, passed) = (Leases::new(10), claim.judged_at);
    assert_eq!(leases.claim(Ticket(0), claim, passed), Claimed::Pending);
    for granted in [left, 0] {
        // What it has granted is asked for once more where it is far too little.
        let Some(call) = leases.due(passed, first_run).turns.pop().map(|turn| turn.call) else { break };
        let answer = TakeAnswer { granted, used: left, leased: left, counted_for_ms: 1_000, ..TakeAnswer::default() };
        leases.answered(call, Ok(answer), passed, passed);
    }
    match leases.claim(Ticket(0), claim, passed) {
        Claimed::Answered(answers) => answers,
        Claimed::Pending => panic!("it is pending"),
    }
}

/// Asks the store what it has not answered yet, as a lane does; how much that is.
fn ask(store: &EmbeddedStore, asked: &mut AskedBatch<'_, impl Records>, now: Time) -> usize {
    let open: Vec<RequestIndex> = asked.unanswered().collect();
    let (batch, answers) = asked.to_ask();
    store.admit_each(batch, &vec![now; batch.requests.len()], answers);
    asked.asked(&open);
    open.len()
}

/// Which of so many intents are approved.
fn approved(decided: &DecidedBatch<'_, impl Records>, intents: usize) -> Vec<bool> {
    (0..intents).map(|index| decided.decision(index).verdict.is_approved()).collect()
}

/// Why and until when an intent of a user is deferred that this keeps back.
fn to_defer(decider: &Decider, user: UserHash, suppressed: Suppressed<'_>, now: Time) -> Option<(DeferReason, Time)> {
    let (set, eval) = (decider.segments.get(), PolicyEval::new(decider.policy.get(), Arc::default(), now));
    let (limits, names) = (BatchLimits::default(), TakenNames::default());
    let grounds = Grounds { decider, set: &set, eval: &eval, limits: &limits, names, now };
    let action = decider.policy.get().pressure.as_ref().map(|rule| rule.action).unwrap_or_default();
    let denial = (GateReason::Limit(suppressed.reason(), action), suppressed.eligible_at);
    let fate = Fate::Suppressed(Denier::Gate(denial), None);
    grounds.to_defer((None, user), Ruled { fate, verdict: &Verdict::Suppressed(suppressed) }, now)
}

#[test]
fn a_record_fits_up_to_the_byte_with_whatever_a_decision_adds() {
    let (decider, value) = (decider(""), r#"{"id":"1","user_id":"u"}"#.to_owned());
    let row = Row { value, headers: vec![("own", "header".to_owned())], ..Row::default() };
    let names_bytes = decider.names_bytes();
    let added = envelope::overhead_bytes(names_bytes).max(decision_header::max_bytes(names_bytes) + HEADER_BYTES);
    let bytes = (RECORD_BYTES + row.value.len() + row.bytes_beside_value(0) + added) as u64;
    decider.limits.set(Destination::Suppressed, bytes);
    assert!(decider.decode(&row)[0].is_ok());
    decider.limits.set(Destination::Suppressed, bytes - 1);
    let letter = DeadLetter::not_writable(row.value.len(), Oversize { bytes, limit_bytes: bytes - 1 });
    assert_eq!(decider.decode(&row), [Err(Undecided::Invalid(letter))]);
}

#[test]
fn there_is_room_for_the_names_of_all_budgets() {
    // Each character is written as six bytes.
    let name = "\u{7}".repeat(256);
    let names: Vec<Arc<str>> = (0..255).map(|_| Arc::from(name.as_str())).collect();
    let plain = decider("").names_bytes();
    let budget = |n: usize| format!("[[budgets]]\nname = \"{n:0256}\"\nlimit = 1\ntotal = true\n");
    let with_budgets = decider(&(0..255).map(budget).collect::<String>());
    let decision = Decision { budgets: &names, ..Decision::sample(Verdict::Approved(Counts::No)) };
    let written = decision_header::write(&decision, Counts::No, &intent(), None).len();
    assert!(written > decision_header::max_bytes(plain), "{written} bytes fit without room for budgets");
    assert!(written <= decision_header::max_bytes(with_budgets.names_bytes()), "{written} bytes");
}

#[test]
fn an_intent_is_deferred_until_its_budget_frees_if_the_budget_defers() {
    let decider = decider(
        "[[budgets]]\nname = \"waits\"\nlimit = 5\nper = \"day\"\nwhen_spent = \"defer\"\n\
         [[budgets]]\nname = \"goes\"\nlimit = 5\nper = \"day\"\n",
    );
    assert!(decider.policy.get().defers());
    let now = now();
    let to_defer = |name, frees_in_ms: Option<i64>| {
        let cause = Cause::Budget(DenyingBudget { name, limit: 5, used: 5 });
        to_defer(&decider, intent().user, Suppressed { cause, eligible_at: frees_in_ms.map(|ms| now.plus(ms)) }, now)
    };
    let hour_ms = 60 * 60 * 1000;
    assert_eq!(to_defer("waits", Some(hour_ms)), Some((DeferReason::Budget, now.plus(hour_ms))));
    assert_eq!(to_defer("waits", None), None, "it never frees");
    assert_eq!(to_defer("waits", Some(73 * hour_ms)), None, "longer than an intent may be deferred");
    assert_eq!(to_defer("goes", Some(hour_ms)), None);
}

#[test]
fn a_batch_of_more_budgets_than_two_bytes_count_takes_from_those_of_each_campaign() {
    const CAMPAIGNS: usize = 300;
    let each: String = (0..255)
        .map(|n| format!("[[budgets]]\nname = \"{n}\"\neach = \"campaign\"\nlimit = 1\ntotal = true\n"))
        .collect();
    let decider = decider(&each);
    let intent = |n: usize| format!(r#"{{"id":"{n}","user_id":{n},"campaign":"{n}"}}"#);
    let records = Rows::of((0..CAMPAIGNS).map(intent));
    let decoded = decider.decode(&records);
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
    let claim = gated.claim().unwrap();
    assert_eq!((claim.budgets.len(), claim.wants.len()), (255 * CAMPAIGNS, CAMPAIGNS));
    for (number, want) in claim.wants.iter().enumerate() {
        let campaigns = claim.sets[want.set as usize].iter().map(|place| &claim.budgets[*place as usize].id.campaign);
        let other = campaigns.flatten().find(|campaign| ***campaign != *number.to_string());
        assert_eq!(other, None, "intent {number} takes from the budget of another campaign");
    }
}
