//! Refunds: some approved intents are refunded, or their deliveries reported, and each process reads the topic with weir's own reader.

use serde_json::{Value, json};
use weir_core::history::{
    delivery_report::{Delivery, DeliveryReportReader},
    refund::RefundReader,
};
use weir_redis::RedisRefunds;
use weir_worker::{
    delivery_reports::DeliveryReports,
    refunds::Refunds,
    topic_reader::{Feed, TopicReader},
};

use super::prelude::*;

pub const PARTITIONS: u64 = 2;
/// How many of 1,000 deliveries that are not refunded are reported.
const REPORTED: u32 = 300;

/// When the send of an id to a user was first refunded.
pub type Refunded = BTreeMap<(String, String), Duration>;

/// The send that a record takes back, as weir reads it.
pub fn taken_back(world: &World, record: &Intent) -> Option<(UserHash, IdHash)> {
    let value = Some(record.value.as_bytes());
    if !world.setting.reports {
        return RefundReader::default().read(value).ok();
    }
    let report = DeliveryReportReader::default().read(value).ok()?;
    (report.outcome == Delivery::Permanent).then_some((report.user, report.id))
}

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
            } else if world.setting.reports && env.chance(REPORTED) {
                let took_ms = env.below(2_000);
                let report =
                    json!({"intent_id": id, "user_id": user, "outcome": "ok", "route": ROUTE, "took_ms": took_ms});
                world.refunds.borrow_mut().append(partition_of(&user), user, report.to_string());
            }
        }
    }
}

fn partition_of(user: &str) -> i32 {
    i32::try_from(user.parse::<u64>().unwrap() % PARTITIONS).unwrap()
}

fn give_back(world: &World, user: String, id: String) {
    let env = &world.env;
    let mut refund = json!({"intent_id": id, "user_id": user});
    if world.setting.reports {
        refund["outcome"] = "permanent".into();
    }
    // Some are no refunds, and become dead letters.
    let value = if env.chance(30) { "{}".to_owned() } else { refund.to_string() };
    let is_refund = value.len() > 2;
    world.refunds.borrow_mut().append(partition_of(&user), user.clone(), value);
    if is_refund {
        env.note(|| format!("{id} of user {user} is refunded"));
        world.refunded.borrow_mut().entry((user, id)).or_insert_with(|| env.passed());
    }
}

impl World {
    /// The reader of a process for refunds, or for reports of deliveries on these routes.
    pub async fn read_refunds(
        self: Rc<Self>,
        process: Rc<Process>,
        stop: CancellationToken,
        routes: Arc<Routes>,
    ) -> Result<(), LaneError> {
        let store = RedisRefunds::new(&self.keyspace.options, &self.keyspace.stats, &self.keyspace.opened);
        match self.setting.reports {
            true => self.read_beside(&process, stop, DeliveryReports::new(store, routes)).await,
            false => self.read_beside(&process, stop, Refunds::new(store)).await,
        }
    }

    async fn read_beside<F: Feed>(
        &self,
        process: &Rc<Process>,
        stop: CancellationToken,
        feed: F,
    ) -> Result<(), LaneError> {
        let metrics = Arc::new(Metrics::default());
        let mut refunds = TopicReader {
            topic: REFUNDS.into(),
            source: SimSource::new(&self.env, &self.refunds, Log::Input, process.number),
            sink: SimSink::new(&self.env, (&self.refunds, &self.book), process, (0, self.next_lane())),
            feed,
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
