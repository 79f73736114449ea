//! An intent is published, approved and read; the cap denies the next, in Kafka and by request, until a refund.

use std::process::Command;

use serde_json::json;
use testkit::{
    kafka::{Consumed, Record, libs_folder},
    process::{Exit, Guarded},
    wait_for, wait_until,
    worker::Worker,
};

use crate::{
    language::{self, Language, succeed},
    support::{
        DEADLINE, Scene, approval,
        http::{address, metric},
    },
};

const POLICY: &str = r#"
version = "1"
[segments.new]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[segments.active]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[default]
caps = [{ name = "daily", limit = 1, window = "24h" }]
"#;
const TOKEN: &str = "of-the-examples";
const PARTITIONS: i32 = 3;
/// A segment's user whom Java's partitioner, librdkafka's own and Node's own put into three different partitions.
const USER: &str = "13";

/// The topics, weir, and how a program of the language is run between them.
struct Walk {
    language: Language,
    scene: Scene,
    worker: Worker,
}

impl Walk {
    fn start(language: Language) -> Self {
        let mut scene = Scene::new(&format!("examples-{}", language.name()), PARTITIONS, POLICY);
        scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", PARTITIONS);
        scene.set("WEIR__HTTP__TOKEN", TOKEN);
        let worker = scene.ready("only");
        Self { language, scene, worker }
    }

    fn program(&self, name: &str, args: &[&str]) -> Command {
        let mut program = self.language.program(name);
        program.args(args).env("WEIR_KAFKA", self.scene.kafka.bootstrap()).env("WEIR_GROUP", self.group());
        program.env("WEIR_HTTP", format!("http://{}", address(&self.worker))).env("WEIR_TOKEN", TOKEN);
        for topic in ["intents", "approved", "refunds"] {
            program.env(format!("WEIR_{}", topic.to_uppercase()), self.scene.topic(topic));
        }
        program
    }

    fn group(&self) -> String {
        self.scene.topic("delivery")
    }

    /// Puts a record that looks like an approval into the user's partition, in a transaction that is aborted.
    fn abort_an_approval(&self) {
        let topic = self.scene.topic("approved");
        let decision = json!({"verdict": "approved", "decided_at": "2026-11-20T09:00:00.000Z"}).to_string();
        let value = json!({"id": "aborted", "user_id": USER}).to_string();
        self.scene.kafka.publish_aborted(&topic, [Record::new(USER, value).header("weir-decision", decision)]).unwrap();
    }

    /// The record of an intent that weir has approved; waits until `reader` has printed its decision.
    fn approved(&self, id: &str, reader: &Guarded) -> Consumed {
        self.scene.wait_until_drained();
        let records = self.scene.output("approved");
        let record = records.into_iter().find(|record| record.value_text().contains(&format!("\"{id}\""))).unwrap();
        let decided_at = approval(&record)["decided_at"].as_str().unwrap().to_owned();
        let line = format!("{id} approved {decided_at}\n");
        let printed = wait_for(DEADLINE, || reader.log().contains(&line).then_some(()));
        assert!(printed.is_some(), "no {line:?} in {}", reader.log());
        record
    }
}

pub fn run(language: Language) {
    let walk = Walk::start(language);
    let scene = &walk.scene;
    walk.abort_an_approval();
    let reader = Guarded::spawn("consume", &walk.program("consume", &[]), &scene.path("consume.log")).unwrap();

    // Approved; the intent is where Java's partitioner puts it, as approved records are.
    let published = succeed(&walk.program("publish", &["first", USER]));
    let first = walk.approved("first", &reader);
    assert_eq!(published, format!("published first to {}/{}", scene.topic("intents"), first.partition));
    assert_eq!(first.key_text(), USER);
    is_idempotent(scene, first.partition);

    // The cap denies the next intent, and one that is asked about.
    succeed(&walk.program("publish", &["second", USER]));
    scene.wait_until_drained();
    assert_eq!(scene.decisions()["second"].reason(), "cap");
    let eligible_at =
        scene.decisions()["second"].envelope.as_ref().unwrap()["eligible_at"].as_str().unwrap().to_owned();
    assert_eq!(succeed(&walk.program("decide", &["third", USER])), format!("third suppressed cap {eligible_at}"));
    let (said, exit) = language::run(walk.program("decide", &["third", USER]).env("WEIR_TOKEN", "another"));
    assert!(exit == Exit::Code(1) && said.contains("no decision on third: 401"), "{said}");

    // The refund frees the cap.
    succeed(&walk.program("refund", &["first", USER]));
    let taken = || metric(&walk.worker, "weir_refunds_total", "outcome=\"taken_back\"") == Some(1.0);
    wait_until(DEADLINE, "the refund is taken", taken);
    succeed(&walk.program("publish", &["fourth", USER]));
    let fourth = walk.approved("fourth", &reader);

    // The consumer commits what it has read, and was shown nothing of the aborted transaction.
    let place = usize::try_from(fourth.partition).unwrap();
    let committed = || scene.kafka.committed(&walk.group(), &scene.topic("approved")).ok()?[place];
    wait_until(DEADLINE, "the consumer commits", || committed() > Some(fourth.offset));
    assert!(!reader.log().contains("aborted"), "{}", reader.log());
}

/// Kafka knows a producer of the intents by its id, as it does idempotent ones alone.
fn is_idempotent(scene: &Scene, partition: i32) {
    let mut tool = language::jvm();
    tool.arg("-cp").arg(libs_folder().join("*")).arg("org.apache.kafka.tools.TransactionsCommand");
    tool.args(["--bootstrap-server", scene.kafka.bootstrap(), "describe-producers"]);
    tool.args(["--topic", &scene.topic("intents"), "--partition", &partition.to_string()]);
    let (listed, _) = language::run(&tool);
    let id = |line: &&str| line.split_whitespace().next().is_some_and(|id| id.parse::<u64>().is_ok());
    assert_eq!(listed.lines().filter(id).count(), 1, "{listed}");
}
