//! Topics that are missing, denied, too small, compacted or truncated. Rows 9, 10, 11.

use testkit::{kafka::Publisher, unique};

use super::*;

/// Settings of the topics of all scenes.
const SIZES: (&str, &str) = ("max.message.bytes", "9000000");
const CLEANER_DEADLINE: Duration = Duration::from_secs(60);

/// After the worker ended with the error and the cause was removed, its successor continues.
fn resumed(trial: &mut Trial) -> Result<usize> {
    let next = trial.start("only", &[]);
    trial.comes_back_with(next)?;
    Ok(next)
}

/// An output topic is deleted before anything is in it.
pub fn output_missing(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "missing")?;
    let dead = trial.scene.topic("suppressed");
    let worker = trial.start_ready("only", &[])?;
    trial.kafka.delete_topic(&dead)?;
    trial.load(1_000)?;
    trial.ends(worker, 1, &["suppressed"])?;
    let again = trial.start("only", &[]);
    trial.ends(again, 2, &[&dead, "kafka.create_topics"])?;
    trial.kafka.create_topic_with(&dead, PARTITIONS, &[SIZES])?;
    resumed(&mut trial)?;
    trial.note("exit 1 with the topic's name; the next start exits with 2");
    trial.finish(1)
}

pub fn output_denied(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "denied")?;
    let approved = trial.scene.topic("approved");
    trial.load(0)?;
    for _ in 0..order.times {
        let worker = trial.start_ready("only", &[])?;
        trial.decided(300)?;
        let denial = ground.kafka()?.deny_writing(&approved)?;
        trial.ends(worker, 1, &["grant WRITE"])?;
        denial.lift()?;
        let next = resumed(&mut trial)?;
        trial.stop(next)?;
    }
    let _last = trial.start("only", &[]);
    trial.finish_noting(order.times, "exit 1 with the right to grant")
}

/// The size limit of the approved topic is lowered, then that of the dead-letter topic below any dead letter.
pub fn output_too_large(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "too-large")?;
    let [approved, dead] = ["approved", "dead"].map(|topic| trial.scene.topic(topic));
    trial.load(0)?;
    for time in 0..order.times {
        let worker = trial.start_ready("only", &[])?;
        trial.decided(300)?;
        trial.kafka.configure_topic(&approved, &[("max.message.bytes", "60000")])?;
        trial.publish_large("none", &format!("{time} approved"), 100_000)?;
        trial.comes_back_with(worker)?;
        trial.kafka.configure_topic(&dead, &[("max.message.bytes", "300")])?;
        trial.publish_large("none", &format!("{time} dead"), 100_000)?;
        trial.ends(worker, 1, &["max.message.bytes", &dead])?;
        trial.kafka.configure_topic(&dead, &[SIZES])?;
        let next = resumed(&mut trial)?;
        trial.kafka.configure_topic(&approved, &[SIZES])?;
        trial.stop(next)?;
    }
    let _last = trial.start("only", &[]);
    trial.finish_noting(order.times, "a dead letter `too_large`; if that does not fit either, exit 1 with the setting")
}

/// Publishers that abort, tombstones, and a topic that is compacted: offsets with gaps.
pub fn strange_upstream(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "upstream")?;
    let topic = trial.scene.topic("intents");
    let compact = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "500"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("delete.retention.ms", "600000"),
    ];
    trial.kafka.configure_topic(&topic, &compact)?;
    let mut stream = trial.stream();
    let publisher = Publisher::transactional(&trial.kafka, &topic, &unique("upstream"))?;
    let before = transactions(&mut trial, &publisher, &mut stream, 60)?;
    let left = wait_for(CLEANER_DEADLINE, || {
        // A segment is closed when something is written behind it.
        let wrote = transactions(&mut trial, &publisher, &mut stream, 2);
        let there = trial.kafka.read_committed(&topic).map_or(usize::MAX, |records| records.len());
        (wrote.is_err() || there < before).then_some(there)
    });
    ensure!(left.is_some_and(|left| left < before), "the log cleaner took nothing of {before} records: {left:?}");
    trial.kafka.configure_topic(&topic, &[SIZES])?;

    let _worker = trial.start_ready("only", &[])?;
    for _ in 0..order.times {
        transactions(&mut trial, &publisher, &mut stream, 20)?;
        let mark = trial.over()?;
        transactions(&mut trial, &publisher, &mut stream, 20)?;
        trial.load(200)?;
        trial.back(&mark)?;
        trial.unload()?;
    }
    let visible = trial.kafka.read_committed(&topic)?.len();
    let written: i64 = trial.kafka.end_offsets(&topic)?.iter().sum();
    trial.finish_noting(order.times, format!("{written} offsets, {visible} visible records"))
}

/// Transactions of 40 records with two tombstones, every other one aborted; returns how many records were committed.
fn transactions(
    trial: &mut Trial,
    publisher: &Publisher,
    stream: &mut impl Iterator<Item = crate::support::model::Sent>,
    count: usize,
) -> Result<usize> {
    let mut committed = 0;
    for number in 0..count {
        publisher.begin()?;
        let mut intents: Vec<_> = stream.take(38).collect();
        // Few users, so that compaction has something to take.
        for sent in &mut intents {
            sent.user %= 400;
            publisher.send(&workload::record(sent))?;
        }
        for key in ["a tombstone", "another"] {
            publisher.send(&Record::tombstone(key))?;
        }
        if number % 2 == 0 {
            publisher.abort()?;
        } else {
            publisher.commit()?;
            committed += 40;
            trial.published.extend(intents);
        }
    }
    Ok(committed)
}

/// A publisher's transactions end, the last one by an abort; then one stays open, and is aborted too. All of their offsets are committed,
/// and none of them is a lag for long.
pub fn aborted_upstream(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "aborted")?;
    let topic = trial.scene.topic("intents");
    let mut stream = trial.stream();
    let publisher = Publisher::transactional(&trial.kafka, &topic, &unique("aborted"))?;
    let worker = trial.start_ready("only", &[])?;
    for _ in 0..order.times {
        transactions(&mut trial, &publisher, &mut stream, 21)?;
        caught_up(&mut trial, worker)?;
        publisher.begin()?;
        for sent in stream.by_ref().take(200) {
            publisher.send(&workload::record(&sent))?;
        }
        publisher.flush()?;
        trial.live(worker, Duration::from_secs(3))?;
        let lag = metric(trial.worker(worker), "weir_lag_records", "");
        ensure!(lag == Some(0.0), "the lag is {lag:?}, of records that cannot be read yet");
        publisher.abort()?;
        caught_up(&mut trial, worker)?;
    }
    let (visible, written) =
        (trial.kafka.read_committed(&topic)?.len(), trial.kafka.end_offsets(&topic)?.iter().sum::<i64>());
    trial.note(format!("{written} offsets, all committed; {visible} visible records; the lag is 0"));
    trial.finish(order.times)
}

/// Waits until the group has committed the last offset of each partition and the worker reports no lag. Notes how long it took.
fn caught_up(trial: &mut Trial, worker: usize) -> Result<()> {
    let since = Instant::now();
    let (kafka, group, topic) = (trial.kafka.clone(), trial.scene.name.clone(), trial.scene.topic("intents"));
    trial.until("the ends are committed", || {
        let ends = kafka.end_offsets(&topic).unwrap_or_default();
        let committed = kafka.committed(&group, &topic).unwrap_or_default();
        !ends.is_empty() && committed == ends.into_iter().map(Some).collect::<Vec<_>>()
    })?;
    trial.until_of(worker, "no lag is left", |worker| metric(worker, "weir_lag_records", "") == Some(0.0))?;
    trial.findings.back_ms.push(since.elapsed().as_millis());
    Ok(())
}

/// Retention deletes the offset of a stopped worker.
pub fn offset_deleted(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "retention")?;
    let topic = trial.scene.topic("intents");
    let worker = trial.start("only", &[]);
    trial.load(0)?;
    trial.decided(500)?;
    trial.stop(worker)?;
    let done = trial.kafka.committed(&trial.scene.name, &topic)?[0].unwrap_or(0);
    trial.until("more comes", || trial.kafka.end_offsets(&topic).is_ok_and(|ends| ends[0] > done + 200))?;
    let mut decided = trial.kafka.read_committed(&topic)?;
    decided.retain(|record| record.partition == 0 && record.offset < done);
    trial.kafka.delete_records(&topic, 0, done + 100)?;
    for _ in 0..order.times {
        let worker = trial.start("only", &[]);
        trial.ends(worker, 1, &["retention has deleted records that weir had not read", "auto.offset.reset"])?;
    }
    let reset = ("WEIR__KAFKA__PROPERTIES__AUTO_OFFSET_RESET", "earliest");
    let worker = trial.start("only", &[reset]);
    trial.comes_back_with(worker)?;
    trial.note(
        "exit 1 with instructions until `auto.offset.reset` is set; the 100 deleted intents are not counted under N",
    );
    trial.finish_with(order.times, decided)
}
