//! What a decision that fails does with its tokens.

use std::collections::BTreeSet;

use weir_core::{
    current::Current,
    deferred_send::DeferredSend,
    document::Format,
    fields::FieldMap,
    ledger::{EmbeddedLedger, TakeRequest},
    policy_file::parse_policy,
    ports::Ledger as _,
    segment::{SegmentSet, UserIdKind, UserIds},
};
use weir_worker::{budgets::BudgetKeeper, clock::SystemClock};

use super::*;

const POLICY: &str = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n\
                      [[budgets]]\nname = \"all\"\nlimit = 1_000\ntotal = true\nbest_effort = true\n";
const TRIES: u64 = 20;

/// A store that answers nothing.
struct Silent(fn() -> StoreError);

impl Store for Silent {
    async fn admit(&mut self, _: &AdmitBatch<'_>, _: &mut [Option<Answer>]) -> Result<(), StoreError> {
        Err(self.0())
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

/// What is used of the budget when an intent has been decided so often in vain.
async fn used_after(store: Silent, deferred: &[u16]) -> u64 {
    let policy = Arc::new(parse_policy("policy.toml", POLICY, Format::Toml, 86_400_000).unwrap());
    let set = SegmentSet::new("s".to_owned(), UserIds::new(UserIdKind::U32, ""), Vec::new());
    let decider = Decider {
        topic: "intents".into(),
        fields: Arc::new(FieldMap::default()),
        segments: Current::new(Arc::new(set)),
        policy: Current::new(Arc::clone(&policy)),
        limits: Arc::default(),
        wheel: None,
        pressure: None,
        routes: None,
        approved_by_channel: Arc::default(),
    };
    let mut ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let (asked, metrics) = (ledger.clone(), Arc::<Metrics>::default());
    let observer: Arc<dyn Observer> = Arc::<Metrics>::clone(&metrics);
    let (keeper, budgets) = BudgetKeeper::new(move || asked.clone(), SystemClock, observer);
    tokio::spawn(keeper.run());
    let deferred_shards = Arc::new(DeferredShards::default());
    deferred_shards.change(&BTreeSet::new(), &deferred.iter().copied().collect());
    let mut query = QueryService::new(&decider, EntryPoint::Http, store, SystemClock, metrics)
        .beside(deferred_shards)
        .taking(budgets.claimant());
    for _ in 0..TRIES {
        assert!(query.decide(br#"{"id":"i","user_id":"u"}"#).await.is_err());
    }
    budgets.close().await;
    let budget = &policy.budgets[0];
    let id = budget.id_for(&weir_core::class::ClassNames { channel: None, category: None, campaign: None }).unwrap();
    let look = TakeRequest::look(&budget.used_by(id, &policy.timezone, SystemClock.now()), 1);
    let mut answers = [None];
    ledger.take(&[look], &mut answers).await.unwrap();
    answers[0].unwrap().used
}

#[tokio::test]
async fn an_intent_that_is_certainly_not_recorded_pays_nothing() {
    let lost = || StoreError::LostHistory { shards: vec![0], message: "by the test".to_owned() };
    assert_eq!(used_after(Silent(lost), &[]).await, 0, "its shard has lost its history");
    assert_eq!(used_after(Silent(lost), &[0]).await, 0, "its shard is not asked");
    let temporary = || StoreError::Temporary("by the test".to_owned());
    assert_eq!(used_after(Silent(temporary), &[]).await, TRIES, "it may be recorded, and then it is a replay");
}
