//! What a decision does with its tokens where it fails or is repeated, and what it does not need the store for.

use std::{collections::BTreeSet, future::poll_fn, pin::pin, task::Poll};

use tokio::sync::Notify;
use weir_core::{
    basis::{current::Current, document::Format, shard::IdHash},
    history::{decide::AdmitVerdict, deferred_send::DeferredSend},
    intent::class::ClassNames,
    limit::{
        budget::{
            BudgetId,
            ledger::{BudgetTokens, EmbeddedLedger, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    policy::{Policy, file::parse_policy},
    ports::Share,
    segment::{SegmentSet, UserIdKind, UserIds},
};
use weir_worker::{
    budgets::{BudgetKeeper, Budgets},
    clock::SystemClock,
};

use self::TestStore::{Defers, Full, Hangs, Knows, Refuses, Silent};
use super::*;

const POLICY: &str = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n";
const TRIES: u64 = 20;
pub(crate) const INTENT: &[u8] = br#"{"id":"i","user_id":"u"}"#;
/// The same, late.
const EXPIRED: &[u8] = br#"{"id":"i","user_id":"u","expires_at":1}"#;

/// A budget of this limit, and what else it has.
pub(crate) fn budget(limit: u64, more: &str) -> String {
    format!("[[budgets]]\nname = \"all\"\nlimit = {limit}\ntotal = true\nbest_effort = true\n{more}")
}

pub(crate) enum TestStore {
    /// It answers nothing.
    Silent(fn() -> StoreError),
    /// It has approved `i` at some time, and allows everything else.
    Knows(Time),
    /// It says when it is asked, and never answers.
    Hangs(Arc<Notify>),
    /// Whoever is to ask it is refused.
    Refuses(fn() -> StoreError),
    /// It says when somebody waits for others who ask it, and these never end.
    Full(Arc<Notify>),
    /// A lane defers writes while somebody waits for others who ask it. The flag: whether a place is taken.
    Defers(Arc<DeferredShards>, bool),
}

impl Store for TestStore {
    async fn ready_for(&mut self, _: UserHash) -> Result<(), StoreError> {
        match self {
            Silent(_) | Knows(_) | Hangs(_) => Ok(()),
            Refuses(error) => Err(error()),
            Full(waits) => {
                waits.notify_one();
                std::future::pending().await
            }
            Defers(shards, is_taken) => {
                shards.change(&BTreeSet::new(), &[0].into());
                *is_taken = true;
                Ok(())
            }
        }
    }

    fn not_asked(&mut self) {
        if let Defers(_, is_taken) = self {
            *is_taken = false;
        }
    }

    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        let before = match self {
            Silent(error) => return Err(error()),
            Refuses(_) | Full(_) | Defers(..) => unreachable!("nobody may ask it"),
            Knows(before) => *before,
            Hangs(asked) => {
                asked.notify_one();
                return std::future::pending().await;
            }
        };
        for (request, answer) in batch.requests.iter().zip(answers) {
            let is_known = request.id == IdHash::of("i");
            let (verdict, at) = match is_known {
                true => (AdmitVerdict::Replayed, before),
                false => (AdmitVerdict::Allowed, batch.now),
            };
            *answer = Some(Answer { verdict, at, ahead: false });
        }
        Ok(())
    }

    fn shards(&self) -> u16 {
        1
    }

    fn watch(&mut self, _: &BTreeSet<u16>) -> Vec<u16> {
        Vec::new()
    }

    async fn record(&mut self, _: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        unreachable!("nothing is owed")
    }
}

/// The ledger of budgets, which may be away.
#[derive(Clone)]
pub(crate) struct Tokens {
    ledger: EmbeddedLedger,
    are_away: bool,
}

impl Tokens {
    pub(crate) fn new(are_away: bool) -> Self {
        Self { ledger: EmbeddedLedger::new("only", || SystemClock.now()), are_away }
    }
}

impl Share<BudgetTokens> for Tokens {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if self.are_away {
            return Err(StoreError::Temporary("by the test".to_owned()));
        }
        self.ledger.turn(budget, number, turn).await
    }
}

/// Decisions over HTTP by this policy, and the task that holds the tokens.
pub(crate) fn service(
    more: &str,
    store: TestStore,
    tokens: &Tokens,
) -> (QueryService<TestStore, SystemClock>, Budgets, Arc<Policy>) {
    let policy = Arc::new(parse_policy("policy.toml", &format!("{POLICY}{more}"), Format::Toml, 86_400_000).unwrap());
    let set = SegmentSet::new("s".to_owned(), UserIds::new(UserIdKind::U32, ""), Vec::new());
    let decider = Decider::new("intents", Current::new(Arc::new(set)), Current::new(Arc::clone(&policy)));
    let metrics = Arc::<Metrics>::default();
    let observer: Arc<dyn Observer> = Arc::<Metrics>::clone(&metrics);
    let tokens = tokens.clone();
    let (keeper, budgets) = BudgetKeeper::new(move || tokens.clone(), SystemClock, observer);
    tokio::spawn(keeper.run());
    let query = QueryService::new(&decider, EntryPoint::Http, store, SystemClock, metrics).taking(budgets.claimant());
    (query, budgets, policy)
}

/// What is used of the budget once all tokens that are left have gone back.
pub(crate) async fn used(budgets: Budgets, policy: &Policy, mut tokens: Tokens) -> u64 {
    budgets.close().await;
    let budget = &policy.budgets[0];
    let id = budget.id_for(&ClassNames { channel: None, category: None, campaign: None }).unwrap();
    let (look, mut answers) = ([budget.used_by(id, &policy.timezone, SystemClock.now())], [None]);
    tokens.ledger.look(&look, 1, &mut answers).await.unwrap();
    answers[0].unwrap().used
}

/// What is used of the budget when an intent has been decided so often in vain.
async fn used_after(store: TestStore, deferred: &[u16]) -> u64 {
    let tokens = Tokens::new(false);
    let (query, budgets, policy) = service(&budget(1_000, ""), store, &tokens);
    let deferred_shards = Arc::new(DeferredShards::default());
    deferred_shards.change(&BTreeSet::new(), &deferred.iter().copied().collect());
    let mut query = query.beside(deferred_shards);
    for _ in 0..TRIES {
        assert!(query.decide(INTENT).await.is_err());
    }
    used(budgets, &policy, tokens).await
}

#[tokio::test]
async fn an_intent_that_is_certainly_not_recorded_pays_nothing() {
    let lost = || StoreError::LostHistory { shards: vec![0], message: "by the test".to_owned() };
    assert_eq!(used_after(Silent(lost), &[]).await, 0, "its shard has lost its history");
    assert_eq!(used_after(Silent(lost), &[0]).await, 0, "its shard is not asked");
    let refused = || StoreError::NotRecorded("by the test".to_owned());
    assert_eq!(used_after(Silent(refused), &[]).await, 0, "Redis refuses to write");
    let temporary = || StoreError::Temporary("by the test".to_owned());
    assert_eq!(used_after(Refuses(temporary), &[]).await, 0, "its node is known not to answer");
    assert_eq!(used_after(Silent(temporary), &[]).await, TRIES, "it may be recorded, and then it is a replay");
}

#[tokio::test]
async fn a_shard_that_a_lane_defers_writes_for_while_somebody_waits_for_the_store_is_not_asked() {
    let deferred_shards = Arc::<DeferredShards>::default();
    let store = Defers(Arc::clone(&deferred_shards), false);
    let (query, ..) = service("", store, &Tokens::new(false));
    let mut query = query.beside(deferred_shards);
    let refused = query.decide(INTENT).await.expect_err("a cap would not count what is deferred");
    assert!(refused.to_string().contains("are being recorded"), "{refused}");
    assert!(matches!(query.store(), Defers(_, false)), "others may ask");
}

#[tokio::test]
async fn who_goes_away_before_the_store_is_asked_pays_nothing() {
    let tokens = Tokens::new(false);
    // The first one brings tokens for many.
    let (mut query, budgets, policy) = service(&budget(1_000_000, ""), Knows(Time::default()), &tokens);
    let other = br#"{"id":"other","user_id":"u"}"#;
    assert_eq!(query.decide(&other[..]).await.unwrap().verdict, "approved");
    for _ in 0..TRIES {
        {
            let mut deciding = pin!(query.decide(INTENT));
            let waits = poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context).is_pending())).await;
            assert!(waits, "the task that holds the tokens has not run since");
            // Messages are taken in their order: it has its token by then, and has not heard of it.
            assert_eq!(budgets.states().await.len(), 1);
        }
    }
    assert_eq!(used(budgets, &policy, tokens).await, 1);
}

/// The tokens that are used after [`TRIES`] clients, one after another, have asked for a decision and closed their connection when the
/// store said so.
async fn used_by_the_gone(store: TestStore, said: &Notify) -> u64 {
    let tokens = Tokens::new(false);
    let (mut query, budgets, policy) = service(&budget(1_000, ""), store, &tokens);
    for _ in 0..TRIES {
        tokio::select! {
            biased;
            _ = query.decide(INTENT) => panic!("the store has answered"),
            () = said.notified() => {}
        }
    }
    used(budgets, &policy, tokens).await
}

#[tokio::test]
async fn who_goes_away_while_others_ask_the_store_pays_nothing() {
    let waits = Arc::<Notify>::default();
    assert_eq!(used_by_the_gone(Full(Arc::clone(&waits)), &waits).await, 0);
}

#[tokio::test]
async fn who_goes_away_while_the_store_is_asked_may_be_recorded_and_pays() {
    let asked = Arc::<Notify>::default();
    assert_eq!(used_by_the_gone(Hangs(Arc::clone(&asked)), &asked).await, TRIES);
}

/// Asks for the decision on the known intent, which has to be the one of before; also where the gate would deny it by now.
async fn is_repeated(query: &mut QueryService<TestStore, SystemClock>, before: Time) {
    for intent in [INTENT, EXPIRED] {
        for _ in 0..TRIES {
            let decision = query.decide(intent).await.unwrap();
            assert_eq!((&*decision.verdict, decision.decided_at), ("approved", before), "{decision:?}");
        }
    }
}

#[tokio::test]
async fn an_approval_of_before_a_budget_is_repeated_whatever_is_left_of_it_and_takes_nothing() {
    let before = SystemClock.now().plus(-3_600_000);
    for (limit, spent) in [(1_000, 0), (1, 1)] {
        let tokens = Tokens::new(false);
        let (mut query, budgets, policy) = service(&budget(limit, ""), Knows(before), &tokens);
        for other in 0..spent {
            let intent = format!(r#"{{"id":"other-{other}","user_id":"u"}}"#);
            assert_eq!(query.decide(intent.as_bytes()).await.unwrap().verdict, "approved");
        }
        is_repeated(&mut query, before).await;
        assert_eq!(used(budgets, &policy, tokens).await, spent, "of {limit}");
    }
}

#[tokio::test]
async fn an_approval_is_repeated_while_a_budget_that_suppresses_then_cannot_be_asked() {
    let before = SystemClock.now().plus(-3_600_000);
    let suppresses = budget(1_000, "on_unavailable = \"suppress\"\n");
    let (mut query, budgets, _) = service(&suppresses, Knows(before), &Tokens::new(true));
    is_repeated(&mut query, before).await;
    let other = query.decide(br#"{"id":"other","user_id":"u"}"#).await.unwrap();
    assert_eq!(other.reason.map(|reason| reason.as_str()), Some("unavailable"));
    budgets.close().await;
}

#[tokio::test]
async fn a_bypass_that_does_not_count_needs_no_store_also_where_it_is_suppressed() {
    let silent = Silent(|| StoreError::Temporary("by the test".to_owned()));
    let bypass = "[[bypass]]\ncategory = \"receipt\"\ncounts = false\n";
    let (mut query, budgets, _) = service(bypass, silent, &Tokens::new(false));
    for (expiry, word) in [("", "approved"), (r#","expires_at":1"#, "suppressed")] {
        let receipt = format!(r#"{{"id":"i","user_id":"u","category":"receipt"{expiry}}}"#);
        assert_eq!(query.decide(receipt.as_bytes()).await.unwrap().verdict, word);
        let counted = format!(r#"{{"id":"i","user_id":"u"{expiry}}}"#);
        assert!(query.decide(counted.as_bytes()).await.is_err());
    }
    budgets.close().await;
}
