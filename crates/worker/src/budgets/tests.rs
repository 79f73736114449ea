//! The task against a ledger that counts who asks it.

use std::{
    future::{pending, poll_fn},
    ops::Range,
    pin::pin,
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};

use tokio::{task::JoinHandle, time::timeout};
use weir_core::{
    limit::{
        budget::{
            BudgetId, SpanNow,
            lease::{Answers, BudgetUse, Claimed, Lender, MOST_TURNS, Outcome, Owed, Settling, Want},
            ledger::{BudgetTokens, EmbeddedLedger, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::{Clock, Share, StoreError},
};

use super::*;
use crate::{
    clock::{
        SystemClock,
        tests::{Noon, noon},
    },
    observer::tests::TestObserver,
};

/// How long anything may take here.
const DEADLINE: Duration = Duration::from_secs(30);

/// What becomes of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Taken,
    Refused,
    /// It is taken, and nobody is told.
    Unheard,
}

/// A connection to a ledger at which each turn takes a moment. Its fate goes by how many were made before.
#[derive(Clone)]
struct Connection {
    ledger: EmbeddedLedger,
    made: Arc<AtomicUsize>,
    fate: fn(usize) -> Fate,
}

impl Share<BudgetTokens> for Connection {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let fate = (self.fate)(self.made.fetch_add(1, Ordering::Relaxed));
        let lost = || StoreError::Temporary("by the test".to_owned());
        if fate == Fate::Refused {
            return Err(lost());
        }
        let answer = self.ledger.turn(budget, number, turn).await?;
        if fate == Fate::Unheard { Err(lost()) } else { Ok(answer) }
    }
}

/// A batch of intents that each take from a budget of their own.
fn claim(budgets: usize) -> Arc<Claim> {
    claim_of(0..budgets)
}

fn claim_of(budgets: Range<usize>) -> Arc<Claim> {
    let used = |number: usize| {
        let id = BudgetId { name: "money".into(), campaign: Some(number.to_string().into()) };
        BudgetUse { id, limit: 1_000, span: SpanNow::Total, best_effort: true, unavailable_after: None }
    };
    let places = 0..u32::try_from(budgets.len()).unwrap();
    Arc::new(Claim {
        judged_at: SystemClock.passed(),
        budgets: budgets.map(used).collect(),
        sets: places.clone().map(|place| vec![place]).collect(),
        wants: places.map(|set| Want { set, cost: 1 }).collect(),
    })
}

/// The task at a ledger, and one who claims.
struct Scene {
    ledger: EmbeddedLedger,
    made: Arc<AtomicUsize>,
    connected: Arc<AtomicUsize>,
    lender: Lender,
    budgets: Budgets,
    claimant: Claimant,
    keeper: JoinHandle<()>,
}

impl Scene {
    fn start(fate: fn(usize) -> Fate) -> Self {
        Self::at(EmbeddedLedger::new("only", || SystemClock.now()), SystemClock, fate)
    }

    fn at(ledger: EmbeddedLedger, clock: impl Clock + Clone + 'static, fate: fn(usize) -> Fate) -> Self {
        let (made, connected) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let connection = Connection { ledger: ledger.clone(), made: Arc::clone(&made), fate };
        let counter = Arc::clone(&connected);
        let connect = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            connection.clone()
        };
        let (keeper, budgets) = BudgetKeeper::new(connect, clock, Arc::new(TestObserver::default()));
        let (lender, claimant) = (Arc::clone(&keeper.lender), budgets.claimant());
        Self { ledger, made, connected, lender, budgets, claimant, keeper: tokio::spawn(keeper.run()) }
    }

    /// What becomes of a claim of so many budgets, whose tokens count as spent.
    async fn claimed(&self, budgets: usize) -> Claimed {
        let funded = self.claimant.ask_for(false, claim(budgets)).await.unwrap();
        funded.map_or(Claimed::Pending, |funded| Claimed::Answered(funded.keep()))
    }

    /// The answer to such a claim, in the end.
    async fn outcomes(&self, budgets: usize) -> Vec<Outcome> {
        let answered = async {
            loop {
                match self.claimed(budgets).await {
                    Claimed::Answered(Answers { outcomes, .. }) => return outcomes,
                    Claimed::Pending => self.claimant.ready().await,
                }
                // The keeper's task, and the timeout.
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, answered).await.expect("the batch is answered")
    }

    /// A claim of a token waits until that has come.
    async fn wait_for_one(&self) {
        assert_eq!(self.claimed(1).await, Claimed::Pending);
        timeout(DEADLINE, self.claimant.ready()).await.expect("its token has come");
    }

    /// How many tokens count as spent of the budget that a claim for one budget uses.
    async fn used(&self) -> u64 {
        let mut answers = [None];
        self.ledger.clone().look(&claim(1).budgets, 1, &mut answers).await.unwrap();
        answers[0].unwrap().used
    }

    /// The task ends; gives how many tokens count as spent then.
    async fn close(mut self) -> u64 {
        self.budgets.close().await;
        (&mut self.keeper).await.unwrap();
        self.used().await
    }
}

#[tokio::test]
async fn a_batch_of_thousands_of_budgets_is_answered_over_a_few_connections() {
    const BUDGETS: usize = 5_000;
    let scene = Scene::start(|_| Fate::Taken);
    assert_eq!(scene.outcomes(BUDGETS).await, vec![Outcome::Granted; BUDGETS]);
    let connected = scene.connected.load(Ordering::Relaxed);
    assert!(connected <= MOST_TURNS, "{connected} connections");
    scene.close().await;
}

#[tokio::test]
async fn a_turn_that_panics_ends_the_task() {
    let mut scene = Scene::start(|_| panic!("by the test"));
    assert_eq!(scene.claimed(1).await, Claimed::Pending);
    let ended = timeout(DEADLINE, &mut scene.keeper).await.expect("it ends");
    assert!(ended.is_err_and(|error| error.is_panic()));
}

#[tokio::test]
async fn what_replays_owe_is_taken_from_a_budget_that_was_counted_since_once_it_answers() {
    let scene = Scene::start(|turn| if turn == 0 { Fate::Refused } else { Fate::Taken });
    let judged_at = SystemClock.passed();
    let owed = |admitted_ago_ms| {
        let used = claim(1).budgets[0].clone();
        vec![Owed::of(used, 7, judged_at, admitted_ago_ms)]
    };
    // It is counted since its first use, a while after these were admitted.
    (scene.lender)(Settling::Owed(owed(60_000)));
    let counted = async {
        while scene.used().await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, counted).await.expect("the tokens are taken");
    // These were admitted long after that.
    (scene.lender)(Settling::Owed(owed(-3_600_000)));
    assert_eq!(scene.close().await, 7);
}

#[tokio::test]
async fn a_process_whose_clock_was_behind_when_it_started_gives_back_what_is_left() {
    let ledger = EmbeddedLedger::new("only", noon);
    // One after the other, with the same name.
    for (begun_ms, behind_ms) in [(0, 0), (1, 3_600_000)] {
        let clock = Noon(Arc::new(AtomicI64::new(-behind_ms)));
        let scene = Scene::at(ledger.clone(), clock.clone(), |_| Fate::Taken);
        // It is corrected before anything is decided.
        clock.0.store(begun_ms, Ordering::Relaxed);
        scene.wait_for_one().await;
        assert_eq!(scene.close().await, 0, "{behind_ms} ms behind");
    }
}

#[tokio::test]
async fn two_processes_with_one_name_that_begin_alike_are_not_granted_the_same_tokens() {
    let ledger = EmbeddedLedger::new("only", noon);
    let scenes = [(); 2].map(|()| Scene::at(ledger.clone(), Noon::default(), |_| Fate::Taken));
    for scene in &scenes {
        assert_eq!(scene.outcomes(1).await, [Outcome::Granted]);
    }
    assert_eq!(scenes[0].used().await, 2);
}

/// How many turns are not heard of.
const UNHEARD: usize = 3;

#[tokio::test]
async fn calls_that_are_carried_out_and_not_heard_of_burn_no_tokens() {
    let scene = Scene::start(|turn| if turn < UNHEARD { Fate::Unheard } else { Fate::Taken });
    assert_eq!(scene.outcomes(1).await, [Outcome::Granted]);
    // What was taken ahead of need goes back, though the first turn is not heard of.
    scene.made.store(UNHEARD - 1, Ordering::Relaxed);
    assert_eq!(scene.close().await, 1);
}

/// A claim of one token whose answer nobody waits for any more: its claimant goes away before the answer is there, or before it has
/// looked at it.
#[tokio::test]
async fn what_is_granted_to_one_who_has_gone_comes_back() {
    for is_answered in [false, true] {
        let scene = Scene::start(|_| Fate::Taken);
        scene.wait_for_one().await;
        {
            let mut claiming = pin!(scene.claimant.ask_for(false, claim(1)));
            let polled = poll_fn(|context| Poll::Ready(claiming.as_mut().poll(context))).await;
            assert!(polled.is_pending(), "the task has not run since");
            if is_answered {
                // Messages are taken in their order.
                assert_eq!(scene.budgets.states().await.len(), 1);
            }
        }
        assert_eq!(scene.close().await, 0, "answered: {is_answered}");
    }
}

/// How many budgets are never answered.
const SILENT: usize = 500;

/// A connection to two nodes, one of which never answers.
struct HalfSilent(EmbeddedLedger);

impl Share<BudgetTokens> for HalfSilent {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        let campaign: usize = budget.campaign.as_deref().unwrap().parse().unwrap();
        if campaign < SILENT {
            pending::<()>().await;
        }
        self.0.turn(budget, number, turn).await
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_of_a_node_that_never_answers_keep_none_of_another_node_waiting() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let connect = move || HalfSilent(ledger.clone());
    let (keeper, budgets) = BudgetKeeper::new(connect, SystemClock, Arc::new(TestObserver::default()));
    tokio::spawn(keeper.run());
    assert!(budgets.claimant().ask_for(true, claim(SILENT)).await.unwrap().is_none());
    // Each of them was asked for in vain by then.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for number in SILENT..SILENT + 10 {
        let claimant = budgets.claimant();
        let granted = async {
            while claimant.ask_for(false, claim_of(number..number + 1)).await.unwrap().is_none() {
                claimant.ready().await;
            }
        };
        timeout(Duration::from_secs(2), granted).await.expect("it has its turn");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A budget that is spent when it is asked first, and free soon after; another one never answers.
struct SpentAtFirst(Arc<AtomicUsize>);

impl Share<BudgetTokens> for SpentAtFirst {
    async fn turn(&mut self, budget: &BudgetId, _: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if budget.campaign.as_deref() == Some("1") {
            pending::<()>().await;
        }
        let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        let (granted, free_in_ms) = if is_first { (0, Some(1)) } else { (turn.want, Some(0)) };
        Ok(TakeAnswer { granted, free_in_ms, ..TakeAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_not_denied_by_what_a_batch_was_answered_that_its_claimant_has_given_up() {
    let made = Arc::<AtomicUsize>::default();
    let turns = Arc::clone(&made);
    let connect = move || SpentAtFirst(Arc::clone(&turns));
    let (keeper, budgets) = BudgetKeeper::new(connect, SystemClock, Arc::new(TestObserver::default()));
    tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    assert!(claimant.ask_for(true, claim(2)).await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(made.load(Ordering::Relaxed), 1, "it was denied, and waits for the other budget");
    let answered = async {
        let mut is_new = true;
        loop {
            if let Some(funded) = claimant.ask_for(std::mem::take(&mut is_new), claim(1)).await.unwrap() {
                return funded.keep().outcomes;
            }
            claimant.ready().await;
        }
    };
    assert_eq!(timeout(DEADLINE, answered).await.expect("it is answered"), [Outcome::Granted]);
}
