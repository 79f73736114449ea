//! Routes while something breaks: their lag, the consumer group, the service, the lanes of what waits. Row 37.

mod edits;
mod service;

use testkit::kafka::Delivery;

pub use self::edits::killed_over_edits;
use self::service::Instance;
use super::*;

const AHEAD: Duration = Duration::from_secs(5);
/// What delivery takes per second: less than comes.
const DELIVERS: u32 = 80;
/// The route's ceiling per second, and what it may take at the least: a hundredth of it.
const RATE: u32 = 300;
const FLOOR: f64 = RATE as f64 / 100.0;
/// What weir takes at once when a case ends.
const ENOUGH: u32 = 5_000;

/// A case where all intents have one route.
struct Paced {
    trial: Trial,
    group: String,
}

impl Paced {
    /// The route has these further lines.
    fn new(ground: &mut Ground, order: &Order, name: &str, more: &str) -> Result<Self> {
        let mut trial = plain(ground, order, name)?;
        trial.scene.wait_for_routes(&["all"]);
        let group = trial.scene.topic("delivery");
        let paced = Self { trial, group };
        paced.route(more);
        Ok(paced)
    }

    fn route(&self, more: &str) {
        let (group, ahead) = (&self.group, AHEAD.as_secs());
        let route = format!("name = \"all\"\nconsumer_group = \"{group}\"\nahead = \"{ahead}s\"\nfair_by = \"user\"\n");
        self.trial.scene.write_policy(&format!("{POLICY}\n[[routes]]\n{route}{more}\n"));
    }

    fn delivery(&self, per_s: u32) -> Result<Delivery> {
        Delivery::start(&self.trial.kafka, &self.group, &self.trial.scene.topic("approved"), per_s)
    }

    /// Waits until so many intents wait, by what a worker says of the route.
    fn waits(&mut self, worker: usize, count: u64, and: impl Fn(&Value) -> bool) -> Result<()> {
        self.trial.until_of(worker, &format!("{count} intents wait"), |worker| {
            let route = route(worker);
            route["waiting"].as_u64() >= Some(count) && and(&route)
        })
    }

    /// Waits until nothing waits: the ends of the waiting topic are committed, and the worker says so.
    fn emptied(&mut self, worker: usize) -> Result<()> {
        // The group is called as the topic is.
        let (kafka, topic) = (self.trial.kafka.clone(), self.trial.scene.topic("waiting-all"));
        self.trial.until("the waiting topic is read to its ends", || {
            let ends = kafka.end_offsets(&topic).unwrap_or_default();
            let committed = kafka.committed(&topic, &topic).unwrap_or_default();
            let is_read = |(end, done): (&i64, Option<i64>)| *end == 0 || done == Some(*end);
            !ends.is_empty() && ends.len() == committed.len() && ends.iter().zip(committed).all(is_read)
        })?;
        self.trial.until_of(worker, "nothing waits", |worker| route(worker)["waiting"].as_u64() == Some(0))
    }

    /// Aborts a transaction with a record in each partition of the waiting topic: what a killed worker leaves where nothing follows.
    fn abort_waiting(&self) -> Result<()> {
        let topic = self.trial.scene.topic("waiting-all");
        let partitions = 0..self.trial.kafka.partitions(&topic)?;
        let records = partitions.map(|partition| Record::new("aborted", "{}").partition(partition));
        self.trial.kafka.publish_aborted(&topic, records)
    }

    /// Waits until the route is paced by its lag, and has been for a while.
    fn steady(&mut self, worker: usize) -> Result<()> {
        self.waits(worker, 500, |route| route["why"] == "delivery takes no more")?;
        self.trial.live(worker, 4 * AHEAD)
    }

    fn approved_end(&self) -> Result<i64> {
        Ok(self.trial.kafka.end_offsets(&self.trial.scene.topic("approved"))?.into_iter().sum())
    }

    /// Waits until so many more are approved, the ends of their transactions among them, and notes how long it took.
    fn goes_on(&mut self, since: Instant, count: u32) -> Result<()> {
        let before = self.approved_end()?;
        self.trial
            .until("approvals go on", || self.approved_end().is_ok_and(|end| end >= before + i64::from(count)))?;
        self.trial.findings.back_ms.push(since.elapsed().as_millis());
        Ok(())
    }

    /// Waits until no more is undelivered than the route may have: consumers that had to join again meanwhile could not, as they have to
    /// see their group, too.
    fn catches_up(&self) -> Result<()> {
        let topic = self.trial.scene.topic("approved");
        let most = i64::from(DELIVERS) * i64::try_from(AHEAD.as_secs())?;
        self.trial.until("the consumers have caught up", || {
            let done =
                self.trial.kafka.committed(&self.group, &topic).unwrap_or_default().into_iter().flatten().sum::<i64>();
            self.approved_end().is_ok_and(|end| end - done <= most)
        })
    }

    /// Ends the load, lets all that waits be decided, and gives when intents were approved.
    fn settle(&mut self) -> Result<Approvals> {
        self.trial.unload()?;
        self.route(&format!("rate = {ENOUGH}"));
        let _delivery = self.delivery(ENOUGH)?;
        self.trial.all_decided()?;
        let approved = self.trial.scene.slim_output("approved");
        // Kafka's client sets the time of a record when it is produced.
        Ok(Approvals(approved.iter().filter_map(|record| record.timestamp_ms).collect()))
    }
}

/// What a worker says of the route.
fn route(worker: &Worker) -> Value {
    let routes: Value = serde_json::from_str(&get(worker, "/v1/routes").1).unwrap_or_default();
    routes[0].clone()
}

/// When intents were approved.
struct Approvals(Vec<i64>);

impl Approvals {
    fn per_s(&self, from_ms: i64, to_ms: i64) -> f64 {
        let count = self.0.iter().filter(|at| (from_ms..to_ms).contains(at)).count();
        count as f64 * 1_000.0 / (to_ms - from_ms) as f64
    }

    /// Checks what was approved per second for so long from a time on.
    fn check(&self, what: &str, (from_ms, length_ms): (i64, i64), (least, most): (f64, f64)) -> Result<String> {
        let found = self.per_s(from_ms, from_ms + length_ms);
        ensure!((least..=most).contains(&found), "{what}: {found:.1} approved per second, not {least:.1} to {most:.1}");
        Ok(format!("{what}: {found:.0}"))
    }
}

/// For a minute nobody may see the group's offsets; its consumers go on, unless they have to join again.
pub fn lag_unknown(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const HALVES_MS: i64 = 10_000;
    let mut paced = Paced::new(ground, order, "lag-unknown", &format!("rate = {RATE}"))?;
    let worker = paced.trial.start_ready("only", &SHORT_SESSION)?;
    let mut delivery = paced.delivery(DELIVERS)?;
    paced.trial.load(2_000)?;
    let mut denied_at = Vec::new();
    for _ in 0..order.times {
        paced.steady(worker)?;
        let denial = ground.kafka()?.deny_describing_group(&paced.group)?;
        paced.waits(worker, 0, |route| route["why"].as_str().is_some_and(|words| words.contains("DESCRIBE")))?;
        denied_at.push(now_ms());
        paced.trial.live(worker, Duration::from_secs(60))?;
        let taken = delivery.delivered().len();
        denial.lift()?;
        paced.catches_up()?;
        paced.goes_on(Instant::now(), 2 * DELIVERS)?;
        paced.trial.note(format!("the consumers had taken {taken} by then"));
    }
    drop(delivery);
    let approvals = paced.settle()?;
    for since_ms in denied_at {
        let mut seen = Vec::new();
        for halved in 0..6 {
            // weir's rate has the ends of transactions in it, which are offsets, too.
            let expected = (f64::from(DELIVERS) / f64::from(1 << halved)).max(FLOOR);
            // It noticed up to 1.5 s before it said so.
            let window = (since_ms + i64::from(halved) * HALVES_MS, HALVES_MS - 2_000);
            let words = format!("{} s without", i64::from(halved) * HALVES_MS / 1_000);
            approvals.check(&words, window, (expected * 0.6, expected * 1.4 + 1.0))?;
            seen.push(format!("{:.0}", approvals.per_s(window.0, window.0 + window.1)));
        }
        paced.trial.note(format!("of {DELIVERS} approved per second, by 10 s without the lag: {}", seen.join(", ")));
    }
    paced.trial.finish(order.times)
}

/// The consumers stop, the group is deleted with its offsets, and after a while the consumers begin anew: at the beginning of the topic,
/// and each second time at its end.
pub fn group_deleted(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut paced = Paced::new(ground, order, "group-deleted", &format!("rate = {RATE}"))?;
    let worker = paced.trial.start_ready("only", &SHORT_SESSION)?;
    paced.trial.load(2_000)?;
    let mut delivery = paced.delivery(DELIVERS)?;
    let mut stopped = Vec::new();
    for round in 0..order.times {
        paced.steady(worker)?;
        drop(delivery);
        stopped.push(now_ms());
        paced.trial.kafka.delete_group(&paced.group)?;
        paced.trial.live(worker, AHEAD + Duration::from_secs(6))?;
        // As fast as they can.
        let begin = if round % 2 == 0 { Delivery::start } else { Delivery::from_its_end };
        delivery = begin(&paced.trial.kafka, &paced.group, &paced.trial.scene.topic("approved"), ENOUGH)?;
        paced.goes_on(Instant::now(), 2 * DELIVERS)?;
        drop(delivery);
        delivery = paced.delivery(DELIVERS)?;
    }
    drop(delivery);
    let approvals = paced.settle()?;
    let ahead_ms = i64::try_from(AHEAD.as_millis())?;
    for at_ms in stopped {
        let probes = approvals.check("a stopped group", (at_ms + ahead_ms, 5_000), (0.0, FLOOR + 1.0))?;
        paced.trial.note(format!("{probes} approved per second"));
    }
    paced.trial.finish(order.times)
}

/// A service of two instances: one dies, then the other one; both return.
pub fn service_dies(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const EACH: u32 = 100;
    /// Three intervals, a turn, and some for a slow machine.
    const NOTICED_MS: i64 = 5_000;
    const LOOK_MS: i64 = 8_000;
    let mut paced = Paced::new(ground, order, "service-dies", "service = \"mailer\"")?;
    let worker = paced.trial.start_ready("only", &SHORT_SESSION)?;
    let http = address(paced.trial.worker(worker));
    let start =
        |paced: &Paced, name| Ok::<_, anyhow::Error>((Instance::start(&http, name, EACH)?, paced.delivery(ENOUGH)?));
    paced.trial.load(2_000)?;
    let look = Duration::from_millis(u64::try_from(NOTICED_MS + LOOK_MS)?);
    let mut seen = Vec::new();
    for _ in 0..order.times {
        let (one, two) = (start(&paced, "one")?, start(&paced, "two")?);
        paced.goes_on(Instant::now(), 2 * EACH)?;
        paced.waits(worker, 500, |route| route["drain_per_s"].as_f64() >= Some(f64::from(2 * EACH)))?;
        let both_ms = now_ms();
        paced.trial.live(worker, look)?;
        drop(one);
        let one_ms = now_ms();
        paced.trial.live(worker, look)?;
        drop(two);
        let none_ms = now_ms();
        paced.trial.live(worker, look)?;
        seen.extend([("two instances", both_ms, 2 * EACH), ("one", one_ms, EACH), ("none", none_ms, 0)]);
    }
    let back = [start(&paced, "one")?, start(&paced, "two")?];
    paced.goes_on(Instant::now(), 2 * EACH)?;
    let approvals = paced.settle()?;
    drop(back);
    for (what, since_ms, registered) in seen {
        let most = f64::from(registered);
        let bounds = if registered == 0 { (0.0, 1.5) } else { (0.8 * most, 1.05 * most) };
        let found = approvals.check(what, (since_ms + NOTICED_MS, LOOK_MS), bounds)?;
        paced.trial.note(format!("{found} approved per second"));
    }
    paced.trial.finish(order.times)
}

/// One of two workers freezes while both read what waits, and wakes when the other one has its partitions.
pub fn zombie(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut paced = Paced::new(ground, order, "waiting-zombie", &format!("rate = {RATE}"))?;
    let (zombie, successor) = (paced.trial.start("zombie", &SMALL), paced.trial.start("successor", &SMALL));
    let _delivery = paced.delivery(ENOUGH)?;
    for _ in 0..order.times {
        paced.trial.all_ready([zombie, successor])?;
        paced.trial.publish_some(8_000)?;
        paced.trial.scene.wait_until_drained();
        // Nothing comes, so a transaction that is open is one of what waited.
        paced.waits(successor, 4_000, |_| true)?;
        paced.trial.freeze_within_a_transaction(zombie)?;
        paced.trial.live(successor, Duration::from_secs(8))?;
        paced.trial.worker(zombie).thaw();
        paced.trial.works_again(zombie)?;
        [zombie, successor].into_iter().try_for_each(|worker| paced.trial.live(worker, Duration::ZERO))?;
    }
    paced.settle()?;
    paced.trial.finish(order.times)
}

/// The tap kills the worker in a transaction of what waited: before the broker has its records, before it has their offsets, before it
/// is committed, and before the worker hears of the commit.
pub fn killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const POINTS: [(Api, Moment); 4] = [
        (Api::Produce, Moment::Request),
        (Api::SendOffsets, Moment::Request),
        (Api::EndTransaction, Moment::Request),
        (Api::EndTransaction, Moment::Reply),
    ];
    // So slow that intents still wait when all are decided, on a busy machine, too.
    let mut paced = Paced::new(ground, order, "waiting-killed", &format!("rate = {}", RATE / 4))?;
    paced.trial.scene.kafka = ground.kafka()?.tapped_client();
    let _delivery = paced.delivery(ENOUGH)?;
    let mut worker = paced.trial.start_ready("victim", &SMALL)?;
    for (api, moment) in POINTS.into_iter().cycle().take(order.times) {
        paced.trial.publish_some(3_000)?;
        paced.trial.scene.wait_until_drained();
        // Nothing comes, so the next transaction is one of what waited.
        paced.waits(worker, 500, |_| true)?;
        let fate = Fate::Kill(paced.trial.worker(worker).pid());
        ground.kafka()?.tap(0).arm(Trap { api, moment, fate });
        paced.trial.until("the worker is killed", || ground.kafka().is_ok_and(|kafka| kafka.tap(0).is_sprung()))?;
        paced.trial.worker(worker).kill();
        worker = paced.trial.start("victim", &SMALL);
        paced.trial.works_again(worker)?;
    }
    paced.settle()?;
    paced.trial.finish(order.times)
}

/// A worker is killed with a transaction open that has records of the waiting topic; its successor has another name, so the broker aborts
/// it. Then one is aborted behind which nothing follows. No offset of them waits for ever, and what comes then is decided as before.
pub fn aborted(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut paced = Paced::new(ground, order, "waiting-aborted", &format!("rate = {RATE}"))?;
    let _delivery = paced.delivery(ENOUGH)?;
    let mut worker = paced.trial.start("victim-0", &SMALL);
    for time in 1..=order.times {
        paced.trial.ready(worker)?;
        paced.trial.publish_some(6_000)?;
        paced.trial.freeze_within_a_transaction_of(worker, &["waiting-all"])?;
        paced.trial.worker(worker).kill();
        worker = paced.trial.start(&format!("victim-{time}"), &SMALL);
        paced.trial.works_again(worker)?;
        paced.emptied(worker)?;
        paced.abort_waiting()?;
        paced.emptied(worker)?;
        paced.trial.publish_some(200)?;
        paced.trial.all_decided()?;
    }
    let decided = paced.trial.scene.every_decision();
    let guessed = decided.iter().find(|(_, decision)| !["approved", "cap"].contains(&decision.reason()));
    ensure!(guessed.is_none(), "suppressed though the route takes all: {guessed:?}");
    paced.settle()?;
    paced.trial.finish(order.times)
}
