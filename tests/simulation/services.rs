//! A service that asks before it works: its instances register, ask processes for admissions, and report their ends; and the checks of
//! what they are given.

use weir_oracle::{
    admissions::Admission,
    desk::{ServiceDesk, ServiceKeeper},
    service::{Registration, ServiceName},
};

use super::{prelude::*, store};

const DICE: &str = "servic";
/// For so long its instances ask.
const ASKS: Duration = Duration::from_secs(BUSY.as_secs() + 20);
/// How long one waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a node forgot is known again so long after that, and after the longest timeout.
const KNOWN_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// It knows what it knew some time before.
    Last,
    /// All of it, and the registry: nobody gets more than it has until all leases of before have ended.
    All,
}

/// The instances of the service, which are alike.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    instances: usize,
    registration: Registration,
    /// When one of them stops to renew its registration.
    leaves: Duration,
    /// From one request to the next, all instances together; and how long the work takes, both in milliseconds and at most.
    asks_every: u64,
    works: u64,
}

/// What happens between the service and the processes.
#[derive(Default)]
pub struct Service {
    desks: Vec<(Rc<Process>, ServiceDesk)>,
    /// Since when each instance may be registered.
    registered: BTreeMap<usize, Duration>,
    /// When each admission was given, and when its work ends.
    pub given: Vec<(Duration, Duration)>,
    pub denied: usize,
}

impl Served {
    /// One in every third run.
    pub fn draw(env: &Env) -> Option<Self> {
        let mut dice = env.dice(DICE, 0);
        let is_third = dice.u32(..3) == 0;
        env.has(About::Services, is_third).then(|| Self {
            instances: 1 + dice.usize(..3),
            registration: Registration {
                capacity_per_s: [2, 5, 20][dice.usize(..3)],
                concurrency: [1, 4, 20][dice.usize(..3)],
                timeout_ms: [2_000, 6_000][dice.usize(..2)],
                network_ms: 50,
                interval_ms: [1_000, 3_000][dice.usize(..2)],
            },
            leaves: Duration::from_millis(dice.u64(10_000..120_000)),
            asks_every: [100, 300, 1_000][dice.usize(..3)],
            works: [50, 1_000, 8_000][dice.usize(..3)],
        })
    }
}

fn service() -> ServiceName {
    ServiceName::new("delivery").unwrap()
}

impl Service {
    /// Where one of the living processes is asked.
    fn desk(&mut self, dice: &mut fastrand::Rng) -> Option<ServiceDesk> {
        self.desks.retain(|(process, _)| !process.is_dead());
        let place = (!self.desks.is_empty()).then(|| dice.usize(..self.desks.len()))?;
        Some(self.desks[place].1.clone())
    }
}

impl World {
    pub fn give_admissions(&self, process: &Rc<Process>) {
        if self.setting.served.is_none() {
            return;
        }
        let (holder, clock) = (store::holder(process.number), process.clock.clone());
        let connect = self.keyspace.services(process.number);
        let (keeper, desk) = ServiceKeeper::new(connect, &holder, clock, Arc::new(Metrics::default()));
        spawn_local(process.run(keeper.run()));
        self.service.borrow_mut().desks.push((Rc::clone(process), desk));
    }
}

pub async fn work(world: Rc<World>, served: Served) {
    for instance in 0..served.instances {
        spawn_local(renew(Rc::clone(&world), served, instance));
    }
    let (env, mut dice) = (world.env.clone(), world.env.dice(DICE, 1));
    while env.passed() < ASKS {
        env.sleep(Duration::from_millis(dice.u64(1..=served.asks_every))).await;
        let works = Duration::from_millis(dice.u64(1..=served.works));
        let desks = {
            let mut service = world.service.borrow_mut();
            service.desk(&mut dice).zip(service.desk(&mut dice))
        };
        if let Some(desks) = desks {
            spawn_local(one(Rc::clone(&world), desks, works));
        }
    }
}

/// What a process answers, where it does so in time.
async fn in_time<T>(env: &Env, asked: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = asked => Some(answer),
        () = env.sleep(PATIENCE) => None,
    }
}

/// One instance of the service, as far as it registers.
async fn renew(world: Rc<World>, served: Served, instance: usize) {
    let (env, mut dice) = (world.env.clone(), world.env.dice(DICE, 2 + instance as u64));
    let name = ServiceName::new(&format!("i{instance}")).unwrap();
    while env.passed() < ASKS && (instance > 0 || env.passed() < served.leaves) {
        let desk = world.service.borrow_mut().desk(&mut dice);
        if let Some(desk) = desk {
            world.service.borrow_mut().registered.entry(instance).or_insert_with(|| env.passed());
            let service = service();
            let registering = desk.register(&service, name.clone(), Some(served.registration));
            if let Some(Err(error)) = in_time(&env, registering).await {
                env.note(|| format!("instance {instance} of the service is not registered: {error}"));
            }
        }
        env.sleep(Duration::from_millis(served.registration.interval_ms)).await;
    }
}

/// Asks for one admission, works, and reports the end, at another process.
async fn one(world: Rc<World>, (desk, other): (ServiceDesk, ServiceDesk), works: Duration) {
    let (env, service) = (world.env.clone(), service());
    let Some(admission) = in_time(&env, desk.ask(&service)).await else { return };
    let Admission::Given { id, timeout_ms } = admission else {
        world.service.borrow_mut().denied += 1;
        return;
    };
    let (at, timeout) = (env.passed(), Duration::from_millis(timeout_ms));
    world.service.borrow_mut().given.push((at, at + works.min(timeout)));
    env.sleep(works.min(timeout)).await;
    if works < timeout {
        let took_ms = u64::try_from(works.as_millis()).unwrap();
        in_time(&env, other.end(&service, id, Some(took_ms))).await;
    }
}

impl Judge<'_> {
    /// All processes together give no more admissions than the instances of the service have registered, per second and at once.
    pub fn admissions(&mut self, cluster: &Cluster) {
        let Some(served) = self.world.setting.served else { return };
        let service = self.world.service.borrow();
        let unknown_for = Duration::from_millis(served.registration.timeout_ms) + KNOWN_AFTER;
        for (at, _) in &service.given {
            let has_just_forgotten = |what: &[Forgotten]| {
                let lately = |since: Duration| (since..since + unknown_for).contains(at);
                cluster.limits_lost.services.iter().any(|(since, forgotten)| what.contains(forgotten) && lately(*since))
            };
            // Who held a share of the rate that nobody knows of does so no more when shares grow again. Admissions last longer.
            let (knows_rate, knows_open) =
                (!has_just_forgotten(&[Forgotten::Last]), !has_just_forgotten(&[Forgotten::Last, Forgotten::All]));
            let instances = service.registered.values().filter(|since| *since <= at).count() as u64;
            let Registration { capacity_per_s, concurrency, .. } = served.registration;
            let (per_s, most) = (instances * capacity_per_s, instances * concurrency);
            let before: Vec<_> = service.given.iter().filter(|(given, _)| given <= at).collect();
            let within = before.iter().filter(|(given, _)| *at < *given + Duration::from_secs(1)).count() as u64;
            let open = before.iter().filter(|(_, end)| at < end).count() as u64;
            if knows_rate && within > per_s || knows_open && open > most {
                self.broken.push(format!(
                    "admissions: {within} of {per_s} within a second, and {open} of {most} at once, at {at:?}"
                ));
                return;
            }
        }
    }
}
