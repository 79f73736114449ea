//! The common part of all cases: a scene under load, workers, a fault, its end, and the judge.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use testkit::{
    clock::ProcessClock,
    kafka::{Consumed, KafkaClient, Record},
    process::Exit,
    wait_for,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::{
    catalogue::Case,
    judge::{TrialVerdict, judge},
    load::{Load, LoadRate},
    support::{POLICY, Scene, http, model::Sent, outcome::case, workload},
};

/// How long a step may take before a case has failed; the promised times in the catalogue are far shorter.
const DEADLINE: Duration = Duration::from_secs(100);
/// Intents per second.
pub const RATE: u32 = 300;
pub const PARTITIONS: i32 = 4;
pub const SHARDS: u16 = 64;
/// A short session, so that a dead member is noticed soon. In production that takes longer by as much as the session
/// is longer (librdkafka's default is 45 s).
pub const SHORT_SESSION: [(&str, &str); 2] = [
    ("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "3000"),
    ("WEIR__KAFKA__PROPERTIES__HEARTBEAT_INTERVAL_MS", "300"),
];

/// The same, and batches so small that a transaction is nearly always open.
pub const SMALL: [(&str, &str); 3] = [SHORT_SESSION[0], SHORT_SESSION[1], ("WEIR__WORKER__BATCH", "100")];

pub fn now_ms() -> i64 {
    SystemClock.now().millis()
}

#[derive(Debug, Clone)]
pub struct Order {
    pub case: &'static Case,
    /// How often the fault is to be injected.
    pub times: usize,
    pub seed: u64,
    /// Whether new intents that are committed later than promised are a failure.
    pub times_count: bool,
    /// Folder for the logs of a failed case.
    pub folder: PathBuf,
}

#[derive(Debug, Default)]
pub struct Findings {
    pub verdict: TrialVerdict,
    pub times: usize,
    /// From each fault's end until new intents are committed.
    pub back_ms: Vec<u128>,
    pub notes: Vec<String>,
}

impl Findings {
    pub fn in_time(&self, case: &Case) -> bool {
        self.back_ms.iter().all(|back_ms| *back_ms <= u128::from(case.within_s) * 1_000)
    }
}

/// The moment a fault ended, and what was published by then.
#[derive(Debug)]
pub struct Mark {
    at: Instant,
    ends: Vec<i64>,
}

/// A running case. If it is dropped before it is judged, the logs of its workers are kept.
#[derive(Debug)]
pub struct Trial {
    pub scene: Scene,
    /// A client to the brokers themselves, past the workers' tap.
    pub kafka: KafkaClient,
    pub numbers: fastrand::Rng,
    pub findings: Findings,
    workers: Vec<Worker>,
    load: Option<Load>,
    /// What was published beside the load, or by loads that have ended.
    pub published: Vec<Sent>,
    order: Order,
    /// How many streams of intents there were.
    streams: u64,
    judged: bool,
}

impl Trial {
    /// A case on these servers, without load and workers yet.
    pub fn new(order: &Order, kafka: &KafkaClient, redis: Vec<String>, name: &str) -> Self {
        Self {
            scene: Scene::on(kafka.clone(), redis, name, PARTITIONS, POLICY),
            kafka: kafka.clone(),
            numbers: fastrand::Rng::with_seed(order.seed),
            findings: Findings::default(),
            workers: Vec::new(),
            load: None,
            published: Vec::new(),
            order: order.clone(),
            streams: 0,
            judged: false,
        }
    }

    /// Publishes so many intents at once, and then [`RATE`] per second.
    pub fn load(&mut self, backlog: usize) -> Result<()> {
        self.load_at(backlog, RATE)
    }

    pub fn load_at(&mut self, backlog: usize, a_second: u32) -> Result<()> {
        let stream = self.stream();
        self.load_of(stream, LoadRate { backlog, a_second, padding: 0 })
    }

    /// The same with these intents.
    pub fn load_of(&mut self, stream: impl Iterator<Item = Sent> + Send + 'static, pace: LoadRate) -> Result<()> {
        ensure!(self.load.is_none(), "there is load already");
        self.load = Some(Load::start(&self.kafka, &self.scene.topic("intents"), stream, pace)?);
        Ok(())
    }

    /// Intents that no other stream of this trial has.
    pub fn stream(&mut self) -> impl Iterator<Item = Sent> + Send + 'static {
        self.streams += 1;
        workload::stream(self.order.seed + self.streams)
    }

    /// Publishes these intents beside the load, and waits until the brokers have them.
    pub fn publish(&mut self, intents: Vec<Sent>) -> Result<()> {
        self.publish_padded(intents, 0)
    }

    /// The same with so many intents of a stream of their own.
    pub fn publish_some(&mut self, count: usize) -> Result<()> {
        let intents = self.stream().take(count).collect();
        self.publish(intents)
    }

    /// The same with payloads that are so many bytes longer.
    pub fn publish_padded(&mut self, intents: Vec<Sent>, padding: usize) -> Result<()> {
        let records = intents.iter().map(|sent| workload::padded(sent, padding));
        self.kafka.publish(&self.scene.topic("intents"), records)?;
        self.published.extend(intents);
        Ok(())
    }

    /// Publishes a case, compressed or not (`none`): an intent of so many bytes, mostly blanks, of a user without caps.
    pub fn publish_large(&self, codec: &'static str, name: &str, bytes: usize) -> Result<()> {
        let value = format!(r#"{{"id":"{name}","user_id":3500{}}}"#, " ".repeat(bytes));
        let record = case(name, Record::new("3500", value));
        self.kafka.compressing(codec).publish(&self.scene.topic("intents"), [record])
    }

    pub fn unload(&mut self) -> Result<()> {
        if let Some(load) = self.load.take() {
            self.published.extend(load.stop()?);
        }
        Ok(())
    }

    /// Ends the load, and waits until all intents are decided.
    pub fn drain(&mut self) -> Result<()> {
        self.unload()?;
        self.scene.wait_until_drained();
        Ok(())
    }

    /// Starts a worker; returns its number.
    pub fn start(&mut self, instance: &str, env: &[(&str, &str)]) -> usize {
        let worker = self.scene.worker_with(instance, env);
        self.workers.push(worker);
        self.workers.len() - 1
    }

    /// The same by a clock, with a short session.
    pub fn start_by(&mut self, instance: &str, clock: &ProcessClock) -> usize {
        let worker = self.scene.worker_by(instance, clock, &SHORT_SESSION);
        self.workers.push(worker);
        self.workers.len() - 1
    }

    pub fn worker(&mut self, number: usize) -> &mut Worker {
        &mut self.workers[number]
    }

    /// Waits until a worker has partitions and decides.
    pub fn ready(&mut self, number: usize) -> Result<()> {
        let worker = &mut self.workers[number];
        let ready = wait_for(DEADLINE, || match worker.exit() {
            Some(exit) => Some(Err(exit)),
            None => (http::get(worker, "/readyz").0 == 200).then_some(Ok(())),
        });
        match ready {
            Some(Ok(())) => Ok(()),
            Some(Err(exit)) => bail!("worker {number} ended with {exit:?}"),
            None => bail!("worker {number} is not ready after {DEADLINE:?}: {}", http::get(worker, "/readyz").1),
        }
    }

    pub fn all_ready<const COUNT: usize>(&mut self, numbers: [usize; COUNT]) -> Result<()> {
        numbers.into_iter().try_for_each(|number| self.ready(number))
    }

    /// Starts a worker and waits until it is ready; returns its number.
    pub fn start_ready(&mut self, instance: &str, env: &[(&str, &str)]) -> Result<usize> {
        let number = self.start(instance, env);
        self.ready(number)?;
        Ok(number)
    }

    /// With load and a worker that is ready; gives its number, too.
    pub fn at_work(mut self, instance: &str, env: &[(&str, &str)]) -> Result<(Self, usize)> {
        self.load(0)?;
        let worker = self.start_ready(instance, env)?;
        Ok((self, worker))
    }

    /// Has a worker end, as it should.
    pub fn stop(&mut self, number: usize) -> Result<()> {
        self.worker(number).terminate();
        self.ends(number, 0, &[]).map(drop)
    }

    /// Waits until the group has decided at least `more` more intents.
    pub fn decided(&self, more: i64) -> Result<()> {
        self.decided_within(DEADLINE, more)
    }

    /// The same for a case that makes them slow.
    pub fn decided_within(&self, deadline: Duration, more: i64) -> Result<()> {
        let before = self.scene.done();
        let done = wait_for(deadline, || (self.scene.done() >= before + more).then_some(()));
        done.with_context(|| {
            format!("waited {deadline:?} in vain for {more} more decisions: {} are there", self.scene.done() - before)
        })
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
        wait_for(DEADLINE, || holds().then_some(()))
            .with_context(|| format!("waited {DEADLINE:?} in vain until {what}"))
    }

    /// The same for a worker's metrics and logs.
    pub fn until_of(&mut self, number: usize, what: &str, mut holds: impl FnMut(&Worker) -> bool) -> Result<()> {
        let worker = &self.workers[number];
        self.until(what, || holds(worker))
    }

    /// Freezes a worker while it has a transaction open; tries until it has one.
    pub fn freeze_within_a_transaction(&mut self, number: usize) -> Result<()> {
        self.freeze_within_a_transaction_of(number, &["approved", "suppressed"])
    }

    /// The same for one that has records of these topics.
    pub fn freeze_within_a_transaction_of(&mut self, number: usize, topics: &[&str]) -> Result<()> {
        let (worker, scene) = (&mut self.workers[number], &self.scene);
        let caught = wait_for(DEADLINE, || {
            worker.freeze();
            let open = topics.iter().any(|topic| scene.is_open(topic));
            if !open {
                worker.thaw();
            }
            open.then_some(())
        });
        caught.context("no transaction was open at any of many looks")
    }

    /// Lets a worker run for a while; it must not end meanwhile.
    pub fn live(&mut self, number: usize, length: Duration) -> Result<()> {
        match wait_for(length, || self.workers[number].exit()) {
            None => Ok(()),
            Some(exit) => bail!("worker {number} ended by itself: {exit:?}; {}", self.workers[number].log()),
        }
    }

    /// The same for some time between these.
    pub fn live_some_time(&mut self, number: usize, from_ms: u64, to_ms: u64) -> Result<()> {
        let length = Duration::from_millis(from_ms + self.numbers.u64(..to_ms - from_ms));
        self.live(number, length)
    }

    /// Waits until a worker has ended by itself with this code and these words on stderr. Returns its error.
    pub fn ends(&mut self, number: usize, code: i32, words: &[&str]) -> Result<String> {
        let worker = &mut self.workers[number];
        let exit = worker.wait_exit(DEADLINE)?;
        let log = worker.log();
        ensure!(exit == Exit::Code(code), "worker {number} ended with {exit:?}, not {code}: {log}");
        let said: Vec<&str> = log.lines().filter(|line| !line.starts_with('{')).collect();
        let said = said.join("\n");
        for word in words {
            ensure!(said.contains(word), "worker {number} should say {word:?}: {said}");
        }
        Ok(said)
    }

    /// The fault is over now.
    pub fn over(&self) -> Result<Mark> {
        let at = Instant::now();
        let topic = self.scene.topic("intents");
        let kafka = self.kafka.impatient();
        let ends = wait_for(DEADLINE, || kafka.end_offsets(&topic).ok()).context("the ends of the intents")?;
        Ok(Mark { at, ends })
    }

    /// Waits until, in every partition, an intent that was published after the fault's end is committed, and with it
    /// all before. Notes how long it took.
    pub fn back(&mut self, mark: &Mark) -> Result<()> {
        let passed = |committed: &[Option<i64>]| {
            committed.len() >= mark.ends.len()
                && committed.iter().zip(&mark.ends).all(|(done, end)| done.is_some_and(|done| done > *end))
        };
        let (kafka, group, topic) = (self.kafka.impatient(), &self.scene.name, self.scene.topic("intents"));
        let load = self.load.as_ref();
        let back = wait_for(DEADLINE, || {
            let there = kafka.committed(group, &topic).is_ok_and(|done| passed(&done));
            (there || load.is_some_and(|load| !load.is_running())).then_some(there)
        });
        if back != Some(true) {
            let done = kafka.committed(group, &topic);
            self.unload().context("the load")?;
            bail!("no intents pass {DEADLINE:?} after the fault's end: {done:?} of {:?}", mark.ends);
        }
        self.findings.back_ms.push(mark.at.elapsed().as_millis());
        Ok(())
    }

    /// The fault is over now: waits as [`Self::back`] does.
    pub fn comes_back(&mut self) -> Result<()> {
        let mark = self.over()?;
        self.back(&mark)
    }

    /// The same; this worker must not have ended.
    pub fn comes_back_with(&mut self, worker: usize) -> Result<()> {
        self.comes_back()?;
        self.live(worker, Duration::ZERO)
    }

    /// The fault is over now: waits until this worker is ready, and some more intents are committed.
    pub fn works_again(&mut self, worker: usize) -> Result<()> {
        let mark = self.over()?;
        self.ready(worker)?;
        self.publish_some(200)?;
        self.back(&mark)
    }

    /// Waits until as many decisions are there as intents were published beside the load.
    pub fn all_decided(&self) -> Result<()> {
        self.until("all is decided", || self.scene.every_decision().len() >= self.published.len())
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.findings.notes.push(note.into());
    }

    /// Ends the load, waits until everything is decided, and judges it.
    pub fn finish(self, times: usize) -> Result<Findings> {
        self.finish_with(times, Vec::new())
    }

    /// The same with a last note.
    pub fn finish_noting(mut self, times: usize, note: impl Into<String>) -> Result<Findings> {
        self.note(note);
        self.finish(times)
    }

    /// The same if some of the decided intents are no longer in their topic.
    pub fn finish_with(mut self, times: usize, gone: Vec<Consumed>) -> Result<Findings> {
        self.unload()?;
        let there = self.scene.slim_output("intents");
        self.drained(&there)?;
        let inputs: Vec<Consumed> = gone.into_iter().chain(there).collect();
        self.findings.verdict = judge(&self.scene, &self.published, &inputs);
        self.findings.times = times;
        let Order { case, .. } = self.order;
        self.judged = self.findings.in_time(case) && self.findings.verdict.keeps(case.promise);
        Ok(std::mem::take(&mut self.findings))
    }

    fn drained(&self, inputs: &[Consumed]) -> Result<()> {
        // Not the ends: those of transactions, behind the last record, are committed a moment later.
        let mut ends: BTreeMap<usize, i64> = BTreeMap::new();
        for input in inputs {
            let end = ends.entry(usize::try_from(input.partition)?).or_default();
            *end = (*end).max(input.offset + 1);
        }
        let (group, topic) = (&self.scene.name, self.scene.topic("intents"));
        let all = |done: &[Option<i64>]| {
            ends.iter().all(|(partition, end)| done.get(*partition).copied().flatten().is_some_and(|done| done >= *end))
        };
        let drained = wait_for(DEADLINE, || self.kafka.committed(group, &topic).ok().filter(|done| all(done)));
        drained.map(|_| ()).with_context(|| {
            format!("not all is decided after {DEADLINE:?}: {:?} of {ends:?}", self.kafka.committed(group, &topic))
        })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.judged {
            return;
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let kept = std::fs::create_dir_all(&self.order.folder)
                .and_then(|()| std::fs::write(self.order.folder.join(format!("worker-{number}.log")), worker.log()));
            if let Err(error) = kept {
                eprintln!("the log of worker {number} is not kept: {error}");
            }
        }
        eprintln!("     logs are in {}", self.order.folder.display());
    }
}
