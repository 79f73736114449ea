//! Deferred intents while something breaks. Row 34. Workers and their Redis have a clock that the case moves; the brokers have the
//! true one.

use super::*;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const FURTHEST_MS: i64 = 150 * MINUTE_MS;

/// A case whose time is moved.
struct Lapse {
    trial: Trial,
    clock: ProcessClock,
    _redis: RedisServer,
    ahead_ms: i64,
    /// By how much the clock has been ahead, from which true times on.
    steps: Vec<(i64, i64)>,
    /// From when on each published intent may be sent.
    not_before: BTreeMap<String, i64>,
}

impl Lapse {
    fn new(ground: &mut Ground, order: &Order, name: &str, shares: i32) -> Result<Self> {
        let clock = ProcessClock::ahead(0)?;
        let redis = RedisServer::start_by(&clock)?;
        let mut trial = on(ground, order, name, vec![redis.url()])?;
        trial.scene.defer(shares);
        trial.scene.kafka = ground.kafka()?.tapped_client();
        Ok(Self { trial, clock, _redis: redis, ahead_ms: 0, steps: vec![(0, 0)], not_before: BTreeMap::new() })
    }

    fn advance(&mut self, by_ms: i64) -> Result<()> {
        self.ahead_ms += by_ms;
        self.steps.push((now_ms(), self.ahead_ms));
        self.clock.set(self.ahead_ms / 1000)
    }

    fn start(&mut self, instance: &str) -> usize {
        self.trial.start_by(instance, &self.clock)
    }

    /// Publishes so many intents; every fourth may be sent only between these times from now.
    fn publish(&mut self, count: usize, (from_ms, to_ms): (i64, i64)) -> Result<()> {
        let now_ms = now_ms() + self.ahead_ms;
        let mut intents: Vec<Sent> = self.trial.stream().take(count).collect();
        for sent in intents.iter_mut().step_by(4) {
            sent.not_before_ms = Some(now_ms + self.trial.numbers.i64(from_ms..to_ms));
        }
        self.not_before.extend(intents.iter().filter_map(|sent| Some((sent.id.clone(), sent.not_before_ms?))));
        self.trial.publish(intents)
    }

    /// Checks that nothing has come out before it was due: by the true time at which each record was written, which is the Kafka
    /// client's, and the case's own account of the moved clock.
    fn nothing_is_early(&self, allowed_ms: i64) -> Result<()> {
        let moved = |true_ms: i64| {
            let step = self.steps.iter().rev().find(|(from_ms, _)| *from_ms <= true_ms);
            true_ms + step.map_or(0, |(_, ahead_ms)| *ahead_ms)
        };
        let mut seen = 0;
        for (id, decision) in self.trial.scene.every_decision() {
            let (Some(not_before), Some(written)) = (self.not_before.get(&id), decision.record.timestamp_ms) else {
                continue;
            };
            seen += 1;
            let written = moved(written) + allowed_ms;
            ensure!(written >= *not_before, "{id} was released {} ms before it was due", not_before - written);
        }
        ensure!(seen > 0, "no deferred intent was decided");
        Ok(())
    }

    /// Lets all that is deferred become due, waits until it is decided, and judges. What a clock released that was ahead is
    /// allowed to be early by as much.
    fn finish(mut self, times: usize, allowed_ms: i64) -> Result<Findings> {
        self.advance(FURTHEST_MS + MINUTE_MS)?;
        self.trial.all_decided()?;
        self.nothing_is_early(allowed_ms)?;
        // Each id was published once, so a duplicate is an intent that a release admitted and the release after a crash did not.
        for (id, decision) in self.trial.scene.every_decision() {
            ensure!(decision.reason() != "duplicate", "{id} was admitted and then suppressed as a duplicate");
        }
        let deferred = self.not_before.len();
        self.trial.note(format!("{deferred} intents were deferred"));
        self.trial.finish(times)
    }
}

/// Killed when a transaction is about to be committed, or has been: as the clock has just jumped, mostly one that moves or
/// releases. Every third time at any moment.
pub fn killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut lapse = Lapse::new(ground, order, "wheel-killed", 1)?;
    let mut worker = lapse.start("only");
    lapse.trial.ready(worker)?;
    lapse.publish(2_000, (MINUTE_MS, FURTHEST_MS))?;
    lapse.trial.scene.wait_until_drained();
    for time in 0..order.times {
        lapse.publish(80, (MINUTE_MS, FURTHEST_MS))?;
        let moment = [Moment::Request, Moment::Reply][time % 2];
        if time % 3 == 2 {
            lapse.advance(3 * MINUTE_MS)?;
            lapse.trial.live_some_time(worker, 100, 2_500)?;
        } else {
            let fate = Fate::Kill(lapse.trial.worker(worker).pid());
            ground.kafka()?.tap(0).arm(Trap { api: Api::EndTransaction, moment, fate });
            lapse.advance(3 * MINUTE_MS)?;
            lapse.trial.until("the worker is killed", || ground.kafka().is_ok_and(|kafka| kafka.tap(0).is_sprung()))?;
        }
        lapse.trial.worker(worker).kill();
        worker = lapse.start("only");
        lapse.trial.works_again(worker)?;
    }
    lapse.finish(order.times, 0)
}

/// One of two workers freezes while much is released, and wakes when the other one has its buckets. Each has one share of every
/// bucket. Small batches make many transactions of a share, so that a look meets an open one.
pub fn zombie(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut lapse = Lapse::new(ground, order, "wheel-zombie", 2)?;
    lapse.trial.scene.set("WEIR__WORKER__BATCH", "100");
    let (zombie, successor) = (lapse.start("zombie"), lapse.start("successor"));
    for _ in 0..order.times {
        lapse.trial.all_ready([zombie, successor])?;
        lapse.publish(12_000, (MINUTE_MS, 2 * MINUTE_MS))?;
        lapse.trial.scene.wait_until_drained();
        // The other one stands still, so that the open transaction is the zombie's.
        lapse.trial.worker(successor).freeze();
        lapse.advance(4 * MINUTE_MS)?;
        lapse.trial.freeze_within_a_transaction(zombie)?;
        lapse.trial.worker(successor).thaw();
        lapse.trial.live(successor, Duration::from_secs(8))?;
        lapse.trial.worker(zombie).thaw();
        lapse.trial.works_again(zombie)?;
        [zombie, successor].into_iter().try_for_each(|worker| lapse.trial.live(worker, Duration::ZERO))?;
    }
    lapse.finish(order.times, 0)
}

/// The broker restarts while a bucket with many intents is emptied.
pub fn broker_restarted(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut lapse = Lapse::new(ground, order, "wheel-broker", 1)?;
    let worker = lapse.start("only");
    lapse.trial.ready(worker)?;
    for _ in 0..order.times {
        lapse.publish(20_000, (MINUTE_MS, MINUTE_MS + 1))?;
        lapse.trial.scene.wait_until_drained();
        lapse.advance(3 * MINUTE_MS)?;
        lapse.trial.live_some_time(worker, 100, 1_500)?;
        ground.kafka()?.restart(0)?;
        lapse.trial.works_again(worker)?;
    }
    lapse.finish(order.times, 0)
}

/// A worker's clock is four minutes ahead of Redis's: it releases early by that. Then it is an hour ahead, and releases nothing.
pub fn clock_ahead(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const AHEAD_MS: i64 = 4 * MINUTE_MS;
    let mut lapse = Lapse::new(ground, order, "wheel-clock", 1)?;
    let own = ProcessClock::ahead(0)?;
    let worker = lapse.trial.start_by("ahead", &own);
    lapse.trial.ready(worker)?;
    for _ in 0..order.times {
        lapse.publish(400, (10 * MINUTE_MS, 11 * MINUTE_MS))?;
        lapse.trial.scene.wait_until_drained();
        // Its time is that of the intents, Redis's is four minutes behind.
        lapse.advance(8 * MINUTE_MS)?;
        own.set((lapse.ahead_ms + AHEAD_MS) / 1000)?;
        lapse.trial.all_decided()?;
        lapse.nothing_is_early(AHEAD_MS)?;

        lapse.publish(400, (30 * MINUTE_MS, 31 * MINUTE_MS))?;
        lapse.trial.scene.wait_until_drained();
        let decided = lapse.trial.published.len() - 100;
        own.set((lapse.ahead_ms + HOUR_MS) / 1000)?;
        lapse
            .trial
            .until_of(worker, "it refuses to decide", |worker| metric(worker, "weir_clock_wrong", "") == Some(1.0))?;
        lapse.trial.live(worker, Duration::from_secs(3))?;
        let found = lapse.trial.scene.every_decision().len();
        ensure!(found == decided, "{found} are decided, not {decided}: released by a wrong clock");
        own.set(lapse.ahead_ms / 1000)?;
        lapse.trial.works_again(worker)?;
        // Now they are due.
        lapse.advance(32 * MINUTE_MS)?;
        own.set(lapse.ahead_ms / 1000)?;
        lapse.trial.all_decided()?;
    }
    // The one clock goes with the other from now on.
    own.set((lapse.ahead_ms + FURTHEST_MS + MINUTE_MS) / 1000)?;
    lapse.finish(order.times, AHEAD_MS)
}

/// The only worker is killed, and the next one starts three days later.
pub fn three_days_off(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut lapse = Lapse::new(ground, order, "wheel-off", 2)?;
    for _ in 0..order.times {
        let worker = lapse.start("only");
        lapse.trial.ready(worker)?;
        lapse.publish(4_000, (MINUTE_MS, 60 * HOUR_MS))?;
        lapse.trial.scene.wait_until_drained();
        lapse.trial.worker(worker).kill();
        lapse.advance(72 * HOUR_MS)?;
        let worker = lapse.start("only");
        lapse.trial.works_again(worker)?;
        lapse.advance(FURTHEST_MS + MINUTE_MS)?;
        lapse.trial.all_decided()?;
        lapse.nothing_is_early(0)?;
        lapse.trial.worker(worker).kill();
    }
    let _last = lapse.start("only");
    lapse.finish(order.times, 0)
}
