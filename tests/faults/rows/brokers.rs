//! Brokers that are killed, restarted or frozen, and lost answers. Rows 7 and 8.

use super::*;
use crate::support::Scene;

/// Small batches, so that many transactions can be hit.
const SMALL: [(&str, &str); 1] = [("WEIR__WORKER__BATCH", "200")];

/// A case on three brokers, with a running worker.
fn replicated(ground: &mut Ground, order: &Order, name: &str) -> Result<(Trial, usize)> {
    let redis = ground.cluster()?.nodes();
    let (trial, worker) = Trial::new(order, ground.brokers()?.client(), redis, name).at_work("only", &SMALL)?;
    trial.decided(200)?;
    Ok((trial, worker))
}

/// The fault ends at once: the other two brokers take over. The dead one restarts before the next fault.
fn kill_each(
    ground: &mut Ground,
    order: &Order,
    name: &str,
    mut victim: impl FnMut(&Kafka, &Scene, usize) -> Result<usize>,
) -> Result<Findings> {
    let (mut trial, worker) = replicated(ground, order, name)?;
    for time in 0..order.times {
        let kafka = ground.brokers()?;
        let broker = victim(kafka, &trial.scene, time)?;
        kafka.kill(broker)?;
        trial.comes_back()?;
        ground.brokers()?.restart(broker)?;
        trial.live(worker, Duration::ZERO)?;
    }
    trial.finish(order.times)
}

pub fn leader_killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    kill_each(ground, order, "leader", |kafka, scene, time| {
        let topic = ["intents", "approved", "suppressed"][time % 3];
        kafka.leader(&scene.topic(topic), 0)
    })
}

pub fn coordinator_killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    kill_each(ground, order, "coordinator", |kafka, scene, time| {
        if time % 2 == 0 {
            kafka.coordinator("__consumer_offsets", &scene.name)
        } else {
            kafka.coordinator("__transaction_state", &format!("{}-only-0", scene.name))
        }
    })
}

/// Two of three brokers are unavailable for longer than a transaction's timeout: nothing can be written or coordinated.
pub fn below_min_insync(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = replicated(ground, order, "min-insync")?;
    for time in 0..order.times {
        let kafka = ground.brokers()?;
        let (one, other) = (time % 3, (time + 1) % 3);
        kafka.kill(one)?;
        kafka.kill(other)?;
        trial.live(worker, Duration::from_secs(20))?;
        let kafka = ground.brokers()?;
        kafka.start_again(one)?;
        kafka.restart(other)?;
        trial.comes_back_with(worker)?;
    }
    trial.finish(order.times)
}

/// One broker after the other stops in an orderly way and comes back.
pub fn rolling_restart(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = replicated(ground, order, "rolling")?;
    for _ in 0..order.times {
        for broker in 0..3 {
            let kafka = ground.brokers()?;
            kafka.stop(broker)?;
            kafka.restart(broker)?;
            trial.comes_back_with(worker)?;
        }
    }
    trial.finish(order.times)
}

/// Freezes the only broker. The load pauses meanwhile: its own client, too, may lose its broker for good.
fn freeze(trial: &mut Trial, ground: &mut Ground, worker: usize, length: Duration) -> Result<()> {
    trial.unload()?;
    ground.kafka()?.freeze(0)?;
    trial.live(worker, length)?;
    ground.kafka()?.thaw(0)?;
    let mark = trial.over()?;
    trial.load(0)?;
    trial.back(&mark)
}

/// The only broker answers nobody for longer than a transaction's timeout, under more load than can be handled.
pub fn broker_frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "broker-frozen")?;
    trial.load(20_000)?;
    let worker = trial.start_ready("frozen-out", &SMALL)?;
    for _ in 0..order.times {
        trial.decided(500)?;
        freeze(&mut trial, ground, worker, Duration::from_secs(20))?;
        trial.live(worker, Duration::ZERO)?;
    }
    trial.finish(order.times)
}

/// No broker answers until the consumer counts as lost and another one replaces it, before the brokers are back.
pub fn consumer_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "consumer-lost")?.at_work("only", &SMALL)?;
    for time in 1..=order.times {
        trial.decided(300)?;
        freeze(&mut trial, ground, worker, Duration::from_secs(50))?;
        let replaced = trial.worker(worker).log().matches("joining the group with a new one").count();
        ensure!(replaced >= time, "the consumer was replaced {replaced} times in {time} freezes");
        trial.live(worker, Duration::ZERO)?;
    }
    trial.finish(order.times)
}

pub fn commit_unclear(ground: &mut Ground, order: &Order) -> Result<Findings> {
    sprung(ground, order, Trap { api: Api::EndTransaction, moment: Moment::Reply, fate: Fate::Cut }, Duration::ZERO)
}

/// The broker does not answer the offsets for longer than the transaction's timeout, so it has aborted the transaction.
pub fn offsets_hang(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let trap = Trap { api: Api::SendOffsets, moment: Moment::Request, fate: Fate::Hold };
    sprung(ground, order, trap, Duration::from_secs(20))
}

fn sprung(ground: &mut Ground, order: &Order, trap: Trap, length: Duration) -> Result<Findings> {
    let (mut trial, worker) = tapped(ground, order, "sprung")?.at_work("tapped", &SMALL)?;
    for _ in 0..order.times {
        trial.decided(200)?;
        ground.kafka()?.tap(0).arm(trap);
        trial.until("the request is met", || ground.kafka().is_ok_and(|kafka| kafka.tap(0).is_sprung()))?;
        trial.live(worker, length)?;
        ground.kafka()?.tap(0).disarm();
        trial.comes_back_with(worker)?;
    }
    let failed = metric(trial.worker(worker), "weir_commit_failures_total", "").unwrap_or(0.0);
    trial.finish_noting(order.times, format!("the lane went back in {failed} of {}", order.times))
}

/// A quota limits the worker to half a megabyte per second; its backlog has large intents.
pub fn throttled(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const SLOW: u32 = 500_000;
    const UNLIMITED: u32 = 1_000_000_000;
    let mut trial = plain(ground, order, "throttled")?;
    let client = trial.scene.name.clone();
    let mut halved = 0;
    for _ in 0..order.times {
        trial.kafka.throttle_producers(&client, SLOW)?;
        let backlog: Vec<Sent> = trial.stream().take(1_000).collect();
        trial.publish_padded(backlog, 20_000)?;
        trial.load_at(0, 50)?;
        let worker = trial.start_ready("only", &[("WEIR__KAFKA__PROPERTIES__CLIENT_ID", &client)])?;
        // All of them, while the broker is slow: for 20 MB it takes 40 s, and longer for what is sent twice.
        trial.decided_within(Duration::from_secs(300), 1_000)?;
        trial.kafka.throttle_producers(&client, UNLIMITED)?;
        trial.comes_back()?;
        halved += trial.worker(worker).log().lines().filter(|line| line.contains("the brokers are too slow")).count();
        trial.unload()?;
        trial.stop(worker)?;
    }
    let _last = trial.start("only", &[]);
    ensure!(halved > 0, "the quota held nothing up");
    trial.finish_noting(order.times, format!("batches were halved {halved} times"))
}
