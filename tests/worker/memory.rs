//! The promise: however long the queue is and however large its records are, the worker stays within `worker.memory`.

use crate::support::Scene;
use testkit::kafka::Record;

const POLICY: &str = "version = \"1\"\n[default]\ncaps = [{ name = \"daily\", limit = 2, window = \"24h\" }]\n";
const MEMORY_MIB: usize = 144;
/// What a build for debugging takes more: its program and stacks are several times as large.
const DEBUG_MIB: usize = 48;

/// The most memory that a process has had, in MiB.
pub(super) fn peak_mib(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

fn backlog(scene: &Scene, records: u64, payload_bytes: usize) {
    let payload = "x".repeat(payload_bytes);
    // Half of them are for few users, so that approved and suppressed copies both come.
    scene.publish((0..records).map(|number| {
        let user = if number % 2 == 0 { number } else { number % 16 };
        let id = format!("{payload_bytes}-{number}");
        let value = format!(r#"{{"id":"{id}","user_id":{user},"payload":"{payload}"}}"#);
        Record::new(user.to_string(), value)
    }));
}

/// A worker of two lanes drains all; gives the most memory that it took, in MiB.
fn drain(scene: &Scene) -> usize {
    let memory = format!("{MEMORY_MIB}MiB");
    let settings =
        [("WEIR__WORKER__MEMORY", memory.as_str()), ("WEIR__WORKER__LANES", "2"), ("WEIR__WORKER__BATCH", "10000")];
    let mut worker = scene.worker_with("only", &settings);
    scene.drain(&mut worker);
    peak_mib(worker.pid())
}

#[test]
fn a_backlog_that_is_compressed_to_a_tenth_is_drained_within_the_setting() {
    let scene = Scene::new("memory-inflated", 8, POLICY);
    let compressing = scene.kafka.compressing("zstd");
    // Letters that do not compress but for a quarter, and then many that do.
    let mut numbers = fastrand::Rng::with_seed(1);
    let noise: String = (0..200_000).map(|_| numbers.alphanumeric()).collect();
    for part in 0..4 {
        let records = (0..2_500).map(|number| {
            let id = format!("{part}-{number}");
            let own = &noise[number * 70..number * 70 + 2_700];
            let value = format!(r#"{{"id":"{id}","user_id":{number},"payload":"{own}{}"}}"#, "x".repeat(17_200));
            Record::new(number.to_string(), value)
        });
        compressing.publish(&scene.topic("intents"), records).unwrap();
    }
    let peak_mib = drain(&scene);
    assert!(peak_mib <= MEMORY_MIB + DEBUG_MIB, "{peak_mib} MiB");
}

#[test]
fn a_backlog_of_large_and_small_intents_is_drained_within_the_setting() {
    let scene = Scene::new("memory", 4, POLICY);
    for _ in 0..3 {
        backlog(&scene, 700, 100_000);
        backlog(&scene, 20_000, 100);
    }
    let peak_mib = drain(&scene);
    assert!(peak_mib <= MEMORY_MIB + DEBUG_MIB, "{peak_mib} MiB");
    let sum: usize = ["approved", "suppressed"].map(|topic| scene.output(topic).len()).iter().sum();
    assert!(sum > 0);
}
