//! The limits of a worker that instances share: the task of each, where lanes and HTTP ask it, and how it ends.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::current::Current,
    limit::{
        HeldLimits,
        budget::ledger::{BudgetTokens, LooksAtBudgets},
        pressure::{Pressure, activity_log::SharedPlaces},
        route::permits::RoutePermits,
    },
    policy::Policy,
    ports::Share,
};
use weir_kafka::client::KafkaOptions;
use weir_oracle::{
    desk::{ServiceDesk, ServiceKeeper},
    service::Services,
};
use weir_worker::{
    budgets::{BudgetKeeper, Budgets},
    clock::{ComparedClock, SystemClock},
    pressure::{PressureKeeper, PressureStatus},
    refresh::Refreshed,
    routes::{KeeperLinks, RoutesKeeper},
};

use crate::{
    cli::assemble::START_PATIENCE,
    limits::{BudgetsShown, LedgerPool, LimitsDesk, LooksAtLedger},
    metrics::Metrics,
    routes::KafkaRoutes,
};

/// Makes a client of a limit, with connections of its own.
pub type Connect<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Where instances share limits.
pub struct LimitStores<L, P, R, S> {
    /// The ledger of budgets, for leases.
    pub ledger: Connect<L>,
    /// The same, for those who look how they stand.
    pub seen_ledger: Connect<L>,
    pub activity_log: P,
    pub permits: Connect<R>,
    /// The services that ask, for this holder of shares.
    pub services: Connect<S>,
    /// A name that no process before had: what that one gave still counts.
    pub holder: String,
}

/// What the tasks of limits go by.
pub struct LimitLinks<'l> {
    /// Kafka, by whose offsets routes go.
    pub kafka: &'l Arc<KafkaOptions>,
    pub policy: Arc<Current<Policy>>,
    pub clock: &'l ComparedClock<SystemClock>,
    pub metrics: &'l Arc<Metrics>,
    pub stop: &'l CancellationToken,
}

/// The limits of a worker.
pub struct WorkerLimits {
    /// Where the tokens of budgets come from.
    pub budgets: Budgets,
    /// Where users are noted as active.
    pub active: Arc<Pressure>,
    /// What lanes take of pressure and routes.
    pub held: HeldLimits,
    /// Who gives admissions to services that ask.
    pub services: ServiceDesk,
    ledger: Arc<dyn LooksAtLedger>,
    pub(super) pressure: PressureStatus,
    /// Ends the task of pressure, once no more users become active.
    pressure_ends: CancellationToken,
    pressure_task: JoinHandle<()>,
}

impl WorkerLimits {
    /// Reads who is active, and starts the task of each limit.
    ///
    /// # Errors
    /// The log of activity does not answer.
    pub async fn start<L, P, R, S>(stores: LimitStores<L, P, R, S>, links: LimitLinks<'_>) -> anyhow::Result<Self>
    where
        L: Share<BudgetTokens> + LooksAtBudgets + 'static,
        P: Share<SharedPlaces> + 'static,
        R: Share<RoutePermits> + 'static,
        S: Services + 'static,
    {
        let LimitStores { ledger, seen_ledger, activity_log, permits, services, holder } = stores;
        let LimitLinks { kafka, policy, clock, metrics, stop } = links;
        let observer = || Arc::<Metrics>::clone(metrics);
        let (mut keeper, active, pressure) =
            PressureKeeper::new(activity_log, clock.clone(), Arc::clone(&policy), observer());
        keeper.load(START_PATIENCE).await?;
        let pressure_ends = CancellationToken::new();
        let pressure_task = tokio::spawn(keeper.run(pressure_ends.clone()));

        let (keeper, budgets) = BudgetKeeper::new(ledger, clock.clone(), observer());
        tokio::spawn(keeper.run());

        let links = KeeperLinks {
            policy,
            routes: Arc::clone(&kafka.routes),
            offsets: Arc::new(KafkaRoutes(Arc::clone(kafka))),
            clock: clock.clone(),
        };
        let spawn = |task| drop(tokio::spawn(task));
        tokio::spawn(RoutesKeeper::new(links, permits, spawn).run(stop.clone()));

        let (keeper, services) = ServiceKeeper::new(services, &holder, clock.clone(), observer());
        tokio::spawn(keeper.run());

        let held = HeldLimits { pressure: Some(Arc::clone(&active)), routes: Some(Arc::clone(&kafka.routes)) };
        let ledger = Arc::new(LedgerPool::new(seen_ledger));
        Ok(Self { budgets, active, held, services, ledger, pressure, pressure_ends, pressure_task })
    }

    /// How they stand under the policy in force, looked at until `stop`.
    pub(super) fn desk(&self, policy: &Arc<Refreshed<Policy>>, stop: CancellationToken) -> Arc<LimitsDesk> {
        let budgets = BudgetsShown::new(Arc::clone(policy), self.budgets.clone(), Arc::clone(&self.ledger));
        let routes = self.held.routes.clone().unwrap_or_default();
        let desk = LimitsDesk::new(policy, budgets, self.pressure.clone(), routes);
        desk.budgets.keep_looking(stop);
        Arc::new(desk)
    }

    /// Gives back what is left, and once the last requests are answered, which make users active, tells other instances who became active
    /// here last.
    pub(super) async fn close(self, requests: impl Future<Output = ()>) {
        let Self { budgets, pressure_ends, pressure_task, .. } = self;
        let pressure = async {
            requests.await;
            pressure_ends.cancel();
            if let Err(error) = pressure_task.await {
                tracing::warn!("the task of pressure has failed: {error}");
            }
        };
        tokio::join!(budgets.close(), pressure);
    }
}
