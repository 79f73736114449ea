//! The promise: no record stops a partition, however large it is and however it was compressed, and none takes the process down.

use crate::{
    memory::peak_mib,
    support::{DEADLINE, Scene, TOPICS},
};
use testkit::{
    kafka::{Consumed, Record},
    wait_until,
};

const POLICY: &str = "version = \"1\"\n[default]\ncaps = [{ name = \"daily\", limit = 1, window = \"24h\" }]\n";
const MIB: usize = 1024 * 1024;
/// What Kafka's topics take unless they say otherwise.
const DEFAULT_BYTES: usize = 1_048_588;

/// A scene whose topics take what Kafka's do by default.
fn scene(name: &str) -> Scene {
    let scene = Scene::new(name, 2, POLICY);
    for topic in TOPICS {
        scene.kafka.configure_topic(&scene.topic(topic), &[("max.message.bytes", &DEFAULT_BYTES.to_string())]).unwrap();
    }
    scene
}

/// An intent of so many bytes, most of them blanks.
fn intent(id: &str, user: u64, bytes: usize) -> String {
    let begin = format!(r#"{{"id":"{id}","user_id":{user}"#);
    let blanks = bytes.saturating_sub(begin.len() + 1);
    format!("{begin}{}}}", " ".repeat(blanks))
}

/// The dead letter of a case, which is a header.
fn dead(scene: &Scene, case: &str) -> Consumed {
    let found: Vec<Consumed> =
        scene.output("dead").into_iter().filter(|letter| letter.header("case") == Some(case)).collect();
    assert_eq!(found.len(), 1, "{case}");
    found.into_iter().next().unwrap()
}

fn assert_too_large(scene: &Scene, letter: &Consumed, what: &str) {
    assert_eq!(letter.value, None, "{what}");
    assert_eq!(letter.header("weir-reason"), Some("too_large"), "{what}");
    assert_eq!(letter.header("__connect.errors.topic"), Some(scene.topic("intents").as_str()), "{what}");
    for name in ["partition", "offset"] {
        let told = letter.header(&format!("__connect.errors.{name}")).unwrap();
        assert!(told.parse::<i64>().is_ok(), "{what}: {told}");
    }
    assert!(letter.header("__connect.errors.exception.message").unwrap().contains("bytes"), "{what}");
}

/// Ids of approved intents, in order.
fn approved(scene: &Scene) -> Vec<String> {
    let id = |record: &Consumed| {
        let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        value["id"].as_str().unwrap().to_owned()
    };
    let mut ids: Vec<String> = scene.output("approved").iter().map(id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_record_whose_output_cannot_be_written_is_a_dead_letter_without_its_value_and_counts_for_nobody() {
    let scene = scene("not-writable");
    let small = |name: &str, user: &str| {
        let id = format!("{name}-behind");
        Record::new(user, intent(&id, user.parse().unwrap(), 0))
    };
    // Compressed it is a few kilobytes.
    let of_zstd = Record::new("5001", intent("zstd", 5001, 9 * MIB)).header("case", "zstd");
    scene.kafka.compressing("zstd").publish(&scene.topic("intents"), [of_zstd]).unwrap();
    scene.publish([
        small("zstd", "5001"),
        Record::new("5002", intent("under", 5002, DEFAULT_BYTES - 200)).header("case", "under"),
        small("under", "5002"),
        Record::new("5003", intent("header", 5003, 40)).header("own", "h".repeat(1_048_100)),
        small("header", "5003"),
    ]);
    // The keys are as large as the topic takes.
    let key = |bytes| format!("5004{}", "k".repeat(bytes));
    scene.publish([
        Record::new(key(600_000), intent("key", 5004, 447_000)).header("case", "key").partition(0),
        small("key", "5004"),
        Record::new(key(1_048_300), intent("whole", 5005, 40)).partition(1),
        small("whole", "5005"),
    ]);
    let _worker = scene.drained("only");

    let letters = scene.output("dead");
    let [zstd, under, of_key] = ["zstd", "under", "key"].map(|case| dead(&scene, case));
    let of_header = letters.iter().find(|letter| letter.header("own").is_none() && letter.key_text() == "5003");
    let of_header = of_header.unwrap().clone();
    for (letter, what) in [(&zstd, "zstd"), (&under, "under"), (&of_header, "header"), (&of_key, "key")] {
        assert_too_large(&scene, letter, what);
    }
    assert_eq!((zstd.key_text().as_str(), under.key_text().as_str()), ("5001", "5002"));
    assert!(zstd.header("__connect.errors.exception.message").unwrap().contains(&(9 * MIB).to_string()));
    assert_eq!(of_key.key_text().len(), 600_004);
    assert_eq!(letters.len(), 5);
    let whole: Vec<&Consumed> = letters.iter().filter(|letter| letter.key.is_none()).collect();
    assert_eq!(whole.len(), 1, "a key that does not fit is dropped");
    assert_too_large(&scene, whole[0], "whole");
    // Each user may have one a day, and has it: nothing was recorded for what is a dead letter.
    assert_eq!(approved(&scene), ["header-behind", "key-behind", "under-behind", "whole-behind", "zstd-behind"]);
}

#[test]
fn a_record_over_the_producers_own_limit_or_a_topics_that_is_lowered_while_weir_runs_is_a_dead_letter_and_not_the_end()
{
    let scene = Scene::new("lowered", 1, POLICY);
    scene.publish([
        Record::new("5001", intent("own", 5001, 400_000)).header("case", "own"),
        Record::new("5001", intent("behind", 5001, 0)),
        // Not JSON, and its dead letter does not fit either.
        Record::new("5002", "?".repeat(400_000)).header("case", "invalid"),
    ]);
    let mut worker = scene.worker_with("only", &[("WEIR__KAFKA__PROPERTIES__MESSAGE_MAX_BYTES", "300000")]);
    scene.drain(&mut worker);
    assert_eq!(approved(&scene), ["behind"]);
    scene.kafka.configure_topic(&scene.topic("approved"), &[("max.message.bytes", "60000")]).unwrap();
    // Many small ones are one batch of more than the limit, too.
    scene.publish([Record::new("5002", intent("large", 5002, 100_000)).header("case", "large")]);
    scene.publish((0..40).map(|number| Record::new("k", intent(&format!("s-{number}"), 6000 + number, 5_000))));
    scene.drain(&mut worker);
    for case in ["own", "invalid", "large"] {
        assert_too_large(&scene, &dead(&scene, case), case);
    }
    assert_eq!(scene.count("dead"), 3);
    assert_eq!(approved(&scene).len(), 41);
}

fn publish_batch(scene: &Scene, partition: i32, codec: &'static str, records: &[(&str, &[u8])]) {
    scene.kafka.compressing(codec).publish_as_one_batch(&scene.topic("intents"), partition, records).unwrap();
}

/// A worker of one lane drains all; the most memory that it took, in MiB, and its log.
fn drain(scene: &Scene) -> (usize, String) {
    let mut worker = scene.worker_with("only", &[("WEIR__WORKER__MEMORY", "144MiB"), ("WEIR__WORKER__LANES", "1")]);
    scene.drain(&mut worker);
    (peak_mib(worker.pid()), worker.log())
}

/// Where the dead letters come from, partitions and offsets; fails where one is not too large.
fn bombs(scene: &Scene) -> Vec<(i64, i64)> {
    let place = |letter: &Consumed| {
        assert_too_large(scene, letter, "bomb");
        let told = |name: &str| letter.header(&format!("__connect.errors.{name}")).unwrap().parse::<i64>().unwrap();
        (told("partition"), told("offset"))
    };
    let mut bombs: Vec<(i64, i64)> = scene.output("dead").iter().map(place).collect();
    bombs.sort_unstable();
    bombs
}

#[test]
fn a_decompression_bomb_is_a_dead_letter_and_memory_stays_bounded() {
    const BOMB: usize = 500 * MIB;
    let scene = Scene::new("bombs", 1, POLICY);
    let good = |id: &str, user| intent(id, user, 0).into_bytes();
    let zeros = vec![0; BOMB];
    publish_batch(&scene, 0, "none", &[("a", &good("first", 1))]);
    publish_batch(&scene, 0, "gzip", &[("b", &zeros)]);
    publish_batch(&scene, 0, "none", &[("a", &good("between", 2))]);
    publish_batch(&scene, 0, "lz4", &[("b", &zeros)]);
    publish_batch(&scene, 0, "zstd", &[("b", &zeros)]);
    // Of several records in such a batch none can be read: each is a dead letter.
    let with = [good("with-1", 3), good("with-2", 4)];
    publish_batch(&scene, 0, "gzip", &[("a", &with[0]), ("b", &zeros[..100 * MIB]), ("a", &with[1])]);
    publish_batch(&scene, 0, "none", &[("a", &good("last", 5))]);
    let (peak, _) = drain(&scene);
    // worker.memory, what a debug build takes more, and what one batch may inflate to.
    assert!(peak <= 144 + 48 + 64, "{peak} MiB");
    assert_eq!(approved(&scene), ["between", "first", "last"]);
    assert_eq!(bombs(&scene), [1, 3, 4, 5, 6, 7].map(|offset| (0, offset)));
}

#[test]
fn bombs_just_under_the_bound_do_not_add_up_in_one_answer_of_a_broker() {
    /// One batch may inflate to 64 MiB.
    const BOMB: usize = 60 * MIB;
    /// librdkafka triples the room for a batch of zstd until all fits, and gives up above the bound.
    const ZSTD_BOMB: usize = BOMB / 3;
    const PARTITIONS: i32 = 2;
    /// The bombs of one partition: 400 MiB of less than 512 kB, which is what a broker gives of one at a time.
    const CODECS: [&str; 12] =
        ["zstd", "gzip", "zstd", "zstd", "gzip", "lz4", "zstd", "zstd", "gzip", "zstd", "zstd", "zstd"];
    let scene = Scene::new("many-bombs", PARTITIONS, POLICY);
    let zeros = vec![0; BOMB];
    let mut good = Vec::new();
    let mut expected = Vec::new();
    for partition in 0..PARTITIONS {
        for (number, codec) in CODECS.into_iter().enumerate() {
            let id = format!("{partition}-{number}");
            let user = 1 + good.len() as u64;
            publish_batch(&scene, partition, "zstd", &[("a", intent(&id, user, 0).as_bytes())]);
            good.push(id);
            let bytes = if codec == "zstd" { ZSTD_BOMB } else { BOMB };
            publish_batch(&scene, partition, codec, &[("b", &zeros[..bytes])]);
            expected.push((i64::from(partition), 2 * number as i64 + 1));
        }
    }
    let (peak, log) = drain(&scene);
    // As above, and what one answer inflates to three times: it waits, is decided, is committed. In it one partition reaches what is
    // enough, and another one has its turn.
    assert!(peak <= 144 + 48 + 3 * 2 * 64, "{peak} MiB");
    good.sort_unstable();
    assert_eq!(approved(&scene), good);
    assert_eq!(bombs(&scene), expected);
    assert!(!log.contains("is passed over"), "each is read: {log}");
}

#[test]
fn bombs_of_one_partition_do_not_keep_the_others_from_being_read() {
    const BOMBS: usize = 20;
    let scene = Scene::new("bombs-of-one", 3, POLICY);
    let zeros = vec![0; 60 * MIB];
    for _ in 0..BOMBS {
        publish_batch(&scene, 0, "gzip", &[("b", &zeros)]);
    }
    for partition in [1_i32, 2] {
        let good = intent(&format!("good-{partition}"), partition.unsigned_abs().into(), 0);
        publish_batch(&scene, partition, "zstd", &[("a", good.as_bytes())]);
    }
    drain(&scene);
    assert_eq!(approved(&scene), ["good-1", "good-2"]);
    let last_good = scene.output("approved").iter().map(|record| record.timestamp_ms.unwrap()).max().unwrap();
    let dead = scene.output("dead");
    assert_eq!(dead.len(), BOMBS);
    let before = dead.iter().filter(|letter| letter.timestamp_ms.unwrap() < last_good).count();
    assert!(before < BOMBS / 2, "{before} bombs came before the last good intent");
}

#[test]
fn a_batch_that_takes_longer_than_a_transaction_may_is_committed_once_in_parts() {
    /// 800 intents of 20 kB: 32 s of what the quota lets through, of which it grants some 11 s at once. A batch of all of them takes
    /// longer than a transaction may.
    const INTENTS: usize = 800;
    let scene = Scene::new("slow-broker", 2, POLICY);
    scene.kafka.throttle_producers(&scene.name, 500_000).unwrap();
    scene.publish((0..INTENTS).map(|number| {
        let user = 10_000 + number;
        Record::new(user.to_string(), intent(&format!("i-{number}"), user as u64, 20_000))
    }));
    // The first batch has all of them, on a busy machine, too, and is full then.
    let (interval, batch) = (("WEIR__WORKER__COMMIT_INTERVAL", "10s"), INTENTS.to_string());
    let client = ("WEIR__KAFKA__PROPERTIES__CLIENT_ID", scene.name.as_str());
    let mut worker = scene.worker_with("only", &[client, interval, ("WEIR__WORKER__BATCH", &batch)]);
    let is_too_slow = || worker.log().contains("the brokers are too slow for the batch");
    wait_until(DEADLINE, "the batch is halved", is_too_slow);
    // What follows is the same at any rate.
    scene.kafka.throttle_producers(&scene.name, 50_000_000).unwrap();
    scene.drain(&mut worker);
    assert_eq!(approved(&scene).len(), INTENTS);
}
