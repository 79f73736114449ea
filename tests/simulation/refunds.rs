//! Refunds: some approved intents are refunded, and each process reads the topic with weir's own reader.

use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weir::metrics::Metrics;
use weir_worker::{lane::LaneError, refunds::Refunds, topic_reader::TopicReader};

use super::{
    process::Process,
    rings::Log,
    run::{DRAIN, World},
    sink::SimSink,
    source::SimSource,
    store::REFUNDS,
    workload::BUSY,
};

pub const PARTITIONS: u64 = 2;

/// When the send of an id to a user was first refunded.
pub type Refunded = BTreeMap<(String, String), Duration>;

/// Refunds some of the visible approvals, for as long as intents arrive.
pub async fn refund(world: Rc<World>) {
    let env = world.env.clone();
    let mut next = 0;
    while env.passed() < BUSY && world.setting.refunds > 0 {
        env.sleep(env.millis(100, 2_000)).await;
        let mut sends = Vec::new();
        {
            let mut broker = world.broker.borrow_mut();
            let (outs, end) = broker.stable(next);
            next = end;
            sends.extend(outs.iter().filter(|out| out.is_approval()).filter_map(|out| {
                let value: Value = serde_json::from_str(&out.intent.value).ok()?;
                Some((out.intent.key.clone(), value["id"].as_str()?.to_owned()))
            }));
        }
        for (user, id) in sends {
            if env.chance(world.setting.refunds) {
                env.sleep(env.millis(0, 300)).await;
                give_back(&world, user, id);
            }
        }
    }
}

fn give_back(world: &World, user: String, id: String) {
    let env = &world.env;
    let partition = i32::try_from(user.parse::<u64>().unwrap() % PARTITIONS).unwrap();
    // Some are no refunds, and become dead letters.
    let value = if env.chance(30) { "{}".to_owned() } else { json!({"intent_id": id, "user_id": user}).to_string() };
    let is_refund = value.len() > 2;
    world.refunds.borrow_mut().append(partition, user.clone(), value);
    if is_refund {
        env.note(|| format!("{id} of user {user} is refunded"));
        world.refunded.borrow_mut().entry((user, id)).or_insert_with(|| env.passed());
    }
}

impl World {
    /// The refunds' reader of a process.
    pub async fn read_refunds(self: Rc<Self>, process: Rc<Process>, stop: CancellationToken) -> Result<(), LaneError> {
        let metrics = Arc::new(Metrics::default());
        let mut refunds = TopicReader {
            topic: REFUNDS.into(),
            source: SimSource::new(&self.env, &self.refunds, Log::Input, process.number),
            sink: SimSink::new(&self.env, (&self.refunds, &self.book), &process, (0, self.next_lane())),
            feed: Refunds::new(self.keyspace.refunds()),
            clock: process.clock.clone(),
            limits: Arc::default(),
            drain: DRAIN,
            stop,
            metrics,
            status: Arc::default(),
        };
        let end = refunds.run().await;
        refunds.source.leave();
        end
    }
}
