//! Offsets that are lost, with their group or with a topic that was recreated, and those of added partitions. Rows 30 and 39.

use super::*;

/// How long deleting and recreating a topic may take.
const RECREATED_DEADLINE: Duration = Duration::from_secs(60);
/// Intents that are published a second time.
const AGAIN: usize = 400;

/// Kafka deletes the group while weir is stopped: weir refuses to start until an operator sets the offsets.
pub fn lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "lost-offsets")?;
    let (group, topic) = (trial.scene.name.clone(), trial.scene.topic("intents"));
    trial.load(0)?;
    for _ in 0..order.times {
        let worker = trial.start_ready("only", &[])?;
        trial.decided(500)?;
        trial.stop(worker)?;
        let committed = trial.kafka.committed(&group, &topic)?;
        trial.kafka.delete_group(&group)?;
        for _ in 0..2 {
            let refused = trial.start("only", &[]);
            trial.ends(refused, 1, &["Kafka has lost the offsets", &group, &topic, "kafka-consumer-groups.sh"])?;
        }
        for (partition, offset) in committed.into_iter().enumerate() {
            let offset = offset.context("a partition had no committed offset")?.to_string();
            trial.kafka.reset_offsets(&group, &format!("{topic}:{partition}"), &["--to-offset", &offset])?;
        }
        let next = trial.start("only", &[]);
        trial.comes_back()?;
        trial.stop(next)?;
    }
    let _last = trial.start("only", &[]);
    trial.note("exit 1 with group, topic, partitions and how to set the offsets; nothing is decided until then");
    trial.finish(order.times)
}

/// What the workers do while the topic is recreated, or gets more partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    Stopped,
    Reads,
}

/// The topic is recreated, and the same records have the same offsets again; then new ones come.
pub fn recreated(ground: &mut Ground, order: &Order, meanwhile: Meanwhile) -> Result<Findings> {
    let mut trial = plain(ground, order, "recreated")?;
    let topic = trial.scene.topic("intents");
    let worker = trial.start("only", &[]);
    let first: Vec<Sent> = trial.stream().take(AGAIN).collect();
    trial.publish(first.clone())?;
    trial.until("all is decided", || usize::try_from(trial.scene.done()).is_ok_and(|done| done >= AGAIN))?;
    let gone = trial.kafka.read_committed(&topic)?;
    if meanwhile == Meanwhile::Stopped {
        trial.stop(worker)?;
    }
    trial.kafka.delete_topic(&topic)?;
    let made = || trial.kafka.create_topic(&topic, PARTITIONS).ok();
    wait_for(RECREATED_DEADLINE, made).context("the topic is not there again")?;
    if meanwhile == Meanwhile::Reads {
        trial.until_of(worker, "it is noticed", |worker| worker.log().contains("was deleted and recreated"))?;
    }
    // Each of these must come out once, too, wherever.
    let again = first.iter().map(|sent| workload::record(sent).header(CASE, sent.id.as_str()));
    trial.kafka.publish(&topic, again)?;
    if meanwhile == Meanwhile::Stopped {
        trial.start("only", &[]);
    }
    trial.load(0)?;
    trial.comes_back()?;
    trial.unload()?;
    let all = trial.kafka.end_offsets(&topic)?.iter().sum();
    trial.until("all is decided", || trial.scene.done() >= all)?;
    let originals: HashMap<&str, &Sent> = first.iter().map(|sent| (sent.id.as_str(), sent)).collect();
    for record in trial.scene.output("approved") {
        let case = header(&record, CASE);
        let Some(sent) = case.and_then(|case| originals.get(case.as_str()).copied()) else { continue };
        // What neither counts nor is recorded is approved as often as it comes.
        ensure!(sent.category == Some("transactional"), "{} was approved twice", sent.id);
    }
    trial.note("the old ids are duplicates, new ones are decided");
    trial.finish_with(1, gone)
}

/// The topic gets more partitions, which are written to before weir knows of them. The group began at the ends of its partitions; those
/// that are added begin at their beginnings.
pub fn grown(ground: &mut Ground, order: &Order, meanwhile: Meanwhile) -> Result<Findings> {
    const INSTANCES: [&str; 2] = ["one", "two"];
    let mut trial = plain(ground, order, "grown")?;
    trial.scene.set("WEIR__KAFKA__PROPERTIES__AUTO_OFFSET_RESET", "latest");
    let (kafka, group, topic) = (trial.kafka.clone(), trial.scene.name.clone(), trial.scene.topic("intents"));
    let mut workers = INSTANCES.map(|instance| trial.start(instance, &SHORT_SESSION));
    trial.all_ready(workers)?;
    // What is published before would be passed over.
    trial.until("all partitions have started", || {
        kafka.committed(&group, &topic).is_ok_and(|committed| committed.iter().all(Option::is_some))
    })?;
    trial.load(0)?;
    let mut partitions = PARTITIONS;
    for _ in 0..order.times {
        trial.decided(300)?;
        if meanwhile == Meanwhile::Stopped {
            for worker in workers {
                trial.stop(worker)?;
            }
        }
        partitions += 2;
        kafka.grow_topic(&topic, partitions)?;
        publish_to(&mut trial, PARTITIONS..partitions)?;
        if meanwhile == Meanwhile::Stopped {
            workers = INSTANCES.map(|instance| trial.start(instance, &SHORT_SESSION));
        }
        let mark = trial.over()?;
        publish_to(&mut trial, PARTITIONS..partitions)?;
        trial.back(&mark)?;
    }
    trial.finish_noting(order.times, format!("{PARTITIONS} partitions became {partitions}"))
}

/// Publishes to these partitions by turns, which the load does not write to. Each intent is of a user of its own: no user is in two
/// partitions.
fn publish_to(trial: &mut Trial, partitions: Range<i32>) -> Result<()> {
    const EACH: usize = 200;
    let first = 10_000 + u64::try_from(trial.published.len())?;
    let users = (first..).zip(trial.stream());
    let intents: Vec<Sent> = users.map(|(user, sent)| Sent { user, ..sent }).take(EACH * partitions.len()).collect();
    let placed = intents.iter().zip(partitions.cycle());
    let records = placed.map(|(sent, partition)| workload::record(sent).partition(partition));
    trial.kafka.publish(&trial.scene.topic("intents"), records)?;
    trial.published.extend(intents);
    Ok(())
}
