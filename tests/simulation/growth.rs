//! Partitions that are added to the intents and to what waits for the route, while instances run or all are down; and where lanes begin
//! to read with `auto.offset.reset = latest`.

use super::{prelude::*, workload::PARTITIONS};

/// Within so many milliseconds clients find added partitions: the default of `topic.metadata.refresh.interval.ms`.
const FOUND_WITHIN_MS: u64 = 10_000;
/// How long before that all instances end, where all are down then.
const DOWN_BEFORE: Duration = Duration::from_secs(1);
/// The partition whose reader commits where all begin.
const FIRST: i32 = 0;

/// One partition is added to each of these topics.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    at: Duration,
    /// All instances are down then, for so long.
    down_for: Option<Duration>,
    /// `auto.offset.reset` is `latest`.
    latest: bool,
}

impl Growth {
    /// In every third run.
    pub fn draw(env: &Env) -> Option<Self> {
        let mut dice = env.dice("growth", 0);
        let is_third = dice.u32(..3) == 0;
        env.has(About::Growth, is_third).then(|| Self {
            at: Duration::from_millis(dice.u64(5_000..25_000)),
            down_for: dice.bool().then(|| Duration::from_millis(dice.u64(100..8_000))),
            latest: dice.bool() || env.sabotage().is_about(About::Growth),
        })
    }

    /// From when on a partition of the intents is there.
    pub fn appears(&self, partition: u64) -> Duration {
        if partition + 1 == PARTITIONS { self.at } else { Duration::ZERO }
    }
}

pub async fn grow(world: Rc<World>) {
    let (Some(growth), env) = (world.setting.growth, &world.env) else { return };
    env.sleep(growth.at - DOWN_BEFORE).await;
    if let Some(down_for) = growth.down_for {
        env.note(|| "-- all instances are down --".to_owned());
        world.down_until.set(growth.at + down_for);
        let processes = world.processes.borrow().clone();
        processes.iter().for_each(|process| process.kill());
    }
    env.sleep(growth.at.saturating_sub(env.passed())).await;
    {
        let mut broker = world.broker.borrow_mut();
        broker.missing = 0;
        broker.tell_groups();
        broker.show();
    }
    env.note(|| "a partition is added to the intents, and to what waits".to_owned());
    for log in [Log::Input, Log::Waiting] {
        env.sleep(env.millis(0, FOUND_WITHIN_MS / 2)).await;
        world.broker.borrow_mut().group(log).rebalance();
    }
}

impl Broker {
    /// A broker whose topics are to grow.
    pub fn growing(mut self, growth: Option<Growth>) -> Self {
        if let Some(growth) = growth {
            self.starts_at_ends = growth.latest;
            self.missing = 1;
            self.tell_groups();
        }
        self
    }

    fn tell_groups(&mut self) {
        for log in [Log::Input, Log::Waiting] {
            let partitions = self.partitions(log);
            self.group(log).set_partitions(log, partitions);
        }
    }

    /// How many partitions the intents, or what waits, have now.
    pub fn partitions(&self, log: Log) -> i32 {
        let all =
            if log == Log::Waiting { WAITING } else { i32::try_from(self.with_records(Log::Input).count()).unwrap() };
        all - self.missing
    }

    /// Where a member begins to read partitions of the intents of which nothing is committed, with `latest`: the rule of
    /// `crates/kafka/src/source/first_start.rs`. Commits that.
    pub fn begin(&mut self, (log, member, generation): Membership, missing: &[i32]) -> Result<Vec<Progress>, String> {
        let has_first = missing.contains(&FIRST);
        let mut asked: Vec<i32> = if has_first { (0..self.partitions(log)).collect() } else { vec![FIRST] };
        asked.extend(missing);
        asked.sort_unstable();
        asked.dedup();
        let known = self.committed_offsets(log, &asked).map_err(|refusal| format!("{refusal:?}"))?;
        let started: Vec<Progress> = known.into_iter().filter_map(|(_, committed)| committed).collect();
        let is_first_start = started.is_empty();
        if is_first_start && !has_first {
            return Err("the member that has the first partition commits where all start".to_owned());
        }
        if !self.group(log).accepts(member, generation) {
            return Err("the member is of another generation".to_owned());
        }
        let is_started = |partition: &i32| started.iter().any(|start| start.partition == *partition);
        let added = missing.iter().copied().filter(|partition| !is_started(partition));
        let new: Vec<i32> = if is_first_start { asked.clone() } else { added.collect() };
        // The planted bug takes what was added for what was there at the first start.
        let at_ends = is_first_start || self.env.sabotage() == Sabotage::AddedReadFromEnd;
        let now = self.env.passed();
        for partition in new {
            let next_offset = if at_ends { self.end_at((log, partition), now) } else { 0 };
            self.committed.insert((log, partition), Progress { partition, next_offset });
            if is_first_start {
                self.skipped.insert(partition, next_offset);
            }
        }
        self.env.note(|| format!("{asked:?} of the intents start: {:?}", self.committed));
        let start = |partition: &i32| self.committed.get(&(log, *partition)).copied();
        Ok(missing.iter().filter_map(start).collect())
    }

    /// Whether an intent was there before the group started, which begins at the ends of partitions then.
    pub fn is_skipped(&self, (partition, offset): (i32, i64)) -> bool {
        self.skipped.get(&partition).is_some_and(|from| offset < *from)
    }
}
