//! The limits of a worker that instances share: the task of each, where lanes and HTTP ask it, and how it ends.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::{
    limit::{
        HeldLimits,
        budget::ledger::{BudgetTokens, LooksAtBudgets},
        pressure::{Pressure, activity_log::SharedPlaces},
        share::{HoldsPart, HoldsParts, LimitTask},
    },
    policy::Policy,
    ports::Share,
};
use weir_kafka::client::KafkaOptions;
use weir_oracle::{
    desk::{ServiceDesk, ServiceKeeper},
    service::Services,
};
use weir_redis::OnRedis;
use weir_worker::{
    budgets::{BudgetKeeper, Budgets},
    clock::{ComparedClock, SystemClock},
    pressure::{AskedTurns, PressureKeeper},
    refresh::Refreshed,
    routes::HeldRoutes,
    share::{KeyedKeeper, RulesInForce},
};

use crate::{
    cli::assemble::{START_PATIENCE, new_epoch},
    limits::{BudgetsShown, LedgerPool, LimitsDesk, PressureShown, RoutesShown, ServicesShown},
    metrics::Metrics,
    routes::KafkaRoutes,
};

/// Makes a client of a limit, with connections of its own.
pub type Connect<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Where instances share limits: in Redis, or in this process.
pub trait LimitClients {
    /// Of the ledger of budgets.
    type Ledger: Share<BudgetTokens> + LooksAtBudgets + 'static;
    /// Of the services that ask.
    type Services: Services + 'static;
    /// Of any other limit.
    type Client<L: OnRedis<By = ()>>: Share<L> + 'static;

    /// The ledger, for leases; and the same, for those who look how budgets stand.
    fn ledgers(&self) -> [Connect<Self::Ledger>; 2];

    /// The services, for this holder of shares.
    fn services(&self, holder: &str) -> Connect<Self::Services>;

    /// Another limit, for this instance.
    fn of<L: OnRedis<By = ()>>(&self) -> Connect<Self::Client<L>>;
}

/// What the tasks of limits go by.
pub struct LimitLinks<'l> {
    /// Kafka, by whose offsets routes go.
    pub kafka: &'l Arc<KafkaOptions>,
    pub policy: &'l Arc<Refreshed<Policy>>,
    pub clock: &'l ComparedClock<SystemClock>,
    pub metrics: &'l Arc<Metrics>,
    pub stop: &'l CancellationToken,
}

pub struct WorkerLimits {
    /// Where the tokens of budgets come from.
    pub budgets: Budgets,
    /// Where users are noted as active.
    pub active: Arc<Pressure>,
    /// What lanes take of pressure and routes.
    pub held: HeldLimits,
    /// Who gives admissions to services that ask.
    pub services: ServiceDesk,
    /// Where lanes ask for turns of pressure.
    pub(super) turns: AskedTurns,
    /// How they stand under the policy in force.
    pub(super) desk: Arc<LimitsDesk>,
    /// Ends their tasks, once nothing more is taken of them: each takes a last turn.
    ends: CancellationToken,
    /// Closed once all of these have ended; it receives a message if one fails.
    pub(super) ended: mpsc::Receiver<()>,
}

/// The tasks of limits, and by what they go.
struct LimitTasks<'l, C> {
    clients: C,
    links: LimitLinks<'l>,
    ends: CancellationToken,
    /// Held by each task that runs.
    running: mpsc::Sender<()>,
}

impl<C: LimitClients> LimitTasks<'_, C> {
    /// Keeps what this instance holds of the limits that the policy in force has by such rules.
    fn keep<H>(&self, parts: H, rules: fn(&Policy) -> &[H::Rule])
    where
        H: HoldsParts<Part: HoldsPart<Limit: OnRedis<By = ()>> + Send + 'static> + Send + 'static,
        H::Rule: Send,
        H::Learnt: Send,
    {
        let (rules, running) = (RulesInForce { policy: self.links.policy.value(), of: rules }, self.running.clone());
        let connect = (self.clients.of::<<H::Part as HoldsPart>::Limit>(), self.links.clock.clone());
        let keeper = KeyedKeeper::new(parts, rules, connect, move |task: LimitTask| spawn(&running, task));
        spawn(&self.running, Box::pin(keeper.run(self.ends.clone())));
    }
}

/// Runs the task of a limit. If it panics, nothing keeps the limit any more, so the process has to end.
fn spawn(running: &mpsc::Sender<()>, task: LimitTask) {
    let running = running.clone();
    tokio::spawn(async move {
        if let Err(error) = tokio::spawn(task).await
            && error.is_panic()
        {
            tracing::error!("the task of a limit has failed: {error}");
            // If the channel is full, another task has failed already.
            let _ = running.try_send(());
        }
    });
}

impl WorkerLimits {
    /// Reads who is active, and starts the task of each limit.
    ///
    /// # Errors
    /// The log of activity does not answer.
    pub async fn start<C: LimitClients>(clients: C, links: LimitLinks<'_>) -> anyhow::Result<Self> {
        let LimitLinks { kafka, policy, clock, metrics, stop } = links;
        let observer = || Arc::<Metrics>::clone(metrics);
        let (ends, (running, ended)) = (CancellationToken::new(), mpsc::channel::<()>(1));
        let (mut keeper, active, pressure) =
            PressureKeeper::new(clients.of::<SharedPlaces>()(), clock.clone(), policy.value(), observer());
        keeper.load(START_PATIENCE).await?;
        spawn(&running, Box::pin(keeper.run(ends.clone())));

        let [ledger, seen_ledger] = clients.ledgers();
        let (keeper, budgets) = BudgetKeeper::new(ledger, clock.clone(), observer());
        spawn(&running, Box::pin(keeper.run()));

        // A name that no process before had: what that one gave still counts.
        let holder = new_epoch();
        let (keeper, services) = ServiceKeeper::new(clients.services(&holder), &holder, clock.clone(), observer());
        let stop_services = ends.clone();
        let keep_services = async move {
            stop_services.run_until_cancelled(keeper.run()).await;
        };
        spawn(&running, Box::pin(keep_services));

        let tasks = LimitTasks { clients, links, ends: ends.clone(), running };
        let offsets = Arc::new(KafkaRoutes(Arc::clone(kafka)));
        let routes = HeldRoutes { routes: Arc::clone(&kafka.routes), offsets, clock: clock.clone() };
        tasks.keep(routes, |policy| policy.routes.as_slice());

        let (pressed, routes) = (Some(Arc::clone(&active)), Some(Arc::clone(&kafka.routes)));
        let held = HeldLimits { pressure: pressed, routes, ..HeldLimits::default() };
        let turns = pressure.turns();
        let ledger = Arc::new(LedgerPool::new(seen_ledger));
        let shown = BudgetsShown::new(Arc::clone(policy), budgets.clone(), ledger);
        let pressure = PressureShown { policy: Arc::clone(policy), status: pressure };
        let routes = RoutesShown { policy: Arc::clone(policy), routes: Arc::clone(&kafka.routes) };
        let services_shown = ServicesShown::new(services.clone());
        let desk = Arc::new(LimitsDesk { budgets: shown, pressure, routes, services: services_shown });
        desk.keep_states_fresh(stop.clone());
        Ok(Self { budgets, active, held, services, turns, desk, ends, ended })
    }

    /// Once the last requests are answered, which take of limits and make users active: gives back what is left, and tells other instances who
    /// became active here last.
    pub(super) async fn close(self, requests: impl Future<Output = ()>) {
        let Self { budgets, ends, ended, .. } = self;
        close(&budgets, &ends, ended, requests).await;
    }
}

async fn close(
    budgets: &Budgets,
    ends: &CancellationToken,
    mut ended: mpsc::Receiver<()>,
    requests: impl Future<Output = ()>,
) {
    requests.await;
    ends.cancel();
    tokio::join!(budgets.close(), async { while ended.recv().await.is_some() {} });
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        task::Poll,
        time::Duration,
    };

    use tokio::time::{sleep, timeout};
    use weir_core::basis::time::Time;

    use super::*;
    use crate::query::tests::{INTENT, TestStore, Tokens, budget, service, used};

    /// Long enough for a task to end that does not wait for requests.
    const A_WHILE: Duration = Duration::from_millis(50);
    const DEADLINE: Duration = Duration::from_secs(60);

    async fn fails() {
        panic!("by the test");
    }

    #[tokio::test]
    async fn a_task_that_panics_is_told_of_while_others_run() {
        let (running, mut ended) = mpsc::channel(1);
        spawn(&running, Box::pin(pending::<()>()));
        spawn(&running, Box::pin(fails()));
        let told = timeout(DEADLINE, ended.recv()).await;
        assert_eq!(told.expect("it is told of"), Some(()));
    }

    #[tokio::test]
    async fn tokens_that_the_last_requests_give_back_go_to_the_ledger() {
        let tokens = Tokens::new(false);
        let (mut query, budgets, policy) = service(&budget(1_000_000, ""), TestStore::Knows(Time::default()), &tokens);
        // The first one brings tokens for many.
        let other = br#"{"id":"other","user_id":"u"}"#;
        assert_eq!(query.decide(&other[..]).await.unwrap().verdict, "approved");
        let mut deciding = Box::pin(query.decide(INTENT));
        let waits = poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context).is_pending())).await;
        assert!(waits, "the task that holds the tokens has not run since");
        // Messages are taken in their order: it has its token by then.
        assert_eq!(budgets.states().await.len(), 1);
        let gone = async {
            while !budgets.states().await.is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let answered = async {
            let _ = timeout(A_WHILE, gone).await;
            // It was approved before: its token is not needed.
            assert_eq!(deciding.await.unwrap().verdict, "approved");
        };
        let (running, ended) = mpsc::channel(1);
        drop(running);
        close(&budgets, &CancellationToken::new(), ended, answered).await;
        assert_eq!(used(budgets, &policy, tokens).await, 1);
    }
}
