use std::os::unix::fs::symlink;

use rdkafka::mocking::MockCluster;
use testkit::scratch::Scratch;
use weir_core::ports::{CommitError, Settled, Sink as _};
use weir_kafka::sink::KafkaSink;

use super::*;
use crate::config;

const FIRST: &str = "first-password";
const SECOND: &str = "second-password";

/// A volume with a password and an authority behind a link, and settings that name them.
struct Volume(Scratch);

impl Volume {
    fn new() -> Self {
        let volume = Self(testkit::folder());
        for name in ["password", "ca.pem"] {
            symlink(Path::new("..data").join(name), volume.0.path().join(name)).unwrap();
        }
        std::fs::create_dir(volume.0.path().join("certificates")).unwrap();
        volume.replace("..1", FIRST, "one");
        volume
    }

    fn replace(&self, version: &str, password: &str, authority: &str) {
        let folder = self.0.path().join(version);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("password"), format!("{password}\n")).unwrap();
        std::fs::write(folder.join("ca.pem"), authority).unwrap();
        let (new, link) = (self.0.path().join("..new"), self.0.path().join("..data"));
        symlink(version, &new).unwrap();
        std::fs::rename(new, link).unwrap();
    }

    fn settings(&self, brokers: &str, protocol: &str, authorities: &str) -> KafkaSettings {
        let text = format!(
            "[kafka]\nbrokers = {brokers:?}\nintents = \"i\"\napproved = \"a\"\nsuppressed = \"s\"\ndead_letters = \"d\"\nrefunds = \"r\"\n\
             [kafka.properties]\n\"security.protocol\" = {protocol:?}\n\"ssl.ca.location\" = {authorities:?}\n[kafka.property_files]\n\"sasl.password\" = \"password\"\n\
             [redis]\nnodes = [\"redis://127.0.0.1:1\"]\n[segments]\nsource = \"s.json\"\n[policy]\nsource = \"p.toml\"\n"
        );
        config::parse("weir.toml", &text, self.0.path(), []).unwrap_or_else(|problems| panic!("{problems}")).kafka
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Files of a volume, and Kafka's options.
fn files_at(volume: &Volume, brokers: &str, protocol: &str) -> (KafkaFiles, Arc<KafkaOptions>) {
    let settings = volume.settings(brokers, protocol, &volume.path("ca.pem"));
    (KafkaFiles::of(&settings), Arc::new(assemble::kafka(&settings)))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_behind_another_link_come_into_force_once() {
    let (cluster, volume) = (MockCluster::new(1).unwrap(), Volume::new());
    let (mut files, kafka) = files_at(&volume, &cluster.bootstrap_servers(), "PLAINTEXT");
    let password = |kafka: &KafkaOptions| kafka.client().get("sasl.password").map(str::to_owned);
    assert_eq!(files.poll(&kafka, Duration::ZERO).await.unwrap(), [""; 0]);
    assert_eq!((kafka.files.edition(), password(&kafka)), (0, Some(FIRST.to_owned())));

    volume.replace("..2", SECOND, "two");
    assert_eq!(files.poll(&kafka, Duration::ZERO).await.unwrap(), ["sasl.password", "ssl.ca.location"]);
    assert_eq!((kafka.files.edition(), password(&kafka)), (1, Some(SECOND.to_owned())));
    assert_eq!(kafka.for_refunds().and_then(|refunds| password(&refunds)), Some(SECOND.to_owned()));

    volume.replace("..3", SECOND, "three");
    assert_eq!(files.poll(&kafka, Duration::ZERO).await.unwrap(), ["ssl.ca.location"]);
    volume.replace("..4", SECOND, "three");
    assert_eq!(files.poll(&kafka, Duration::ZERO).await.unwrap(), [""; 0]);
    assert_eq!(kafka.files.edition(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_read_or_are_refused_replace_nothing_and_are_told_once() {
    let volume = Volume::new();
    let (mut files, kafka) = files_at(&volume, "127.0.0.1:1", "SSL");
    let link = volume.0.path().join("..data");
    std::fs::remove_file(&link).unwrap();
    let unreadable = files.poll(&kafka, Duration::ZERO).await.unwrap_err();
    assert!(unreadable.to_string().contains("kafka.property_files.sasl.password names"), "{unreadable}");
    assert!(unreadable.repeats(&files.poll(&kafka, Duration::ZERO).await.unwrap_err()));

    volume.replace("..1b", "", "two");
    let empty = files.poll(&kafka, Duration::ZERO).await.unwrap_err();
    assert!(empty.to_string().contains("which is empty") && !empty.repeats(&unreadable), "{empty}");

    // No certificate is in it.
    volume.replace("..2", SECOND, "half of a certifi");
    let refused = files.poll(&kafka, Duration::ZERO).await.unwrap_err();
    let message = refused.to_string();
    for part in ["sasl.password, ssl.ca.location", "ssl.ca.location failed"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!format!("{message}{refused:?}").contains(SECOND), "{message}");
    assert!(!refused.repeats(&unreadable));
    assert!(refused.repeats(&files.poll(&kafka, Duration::ZERO).await.unwrap_err()));
    volume.replace("..3", SECOND, "half of a certificate");
    assert!(!refused.repeats(&files.poll(&kafka, Duration::ZERO).await.unwrap_err()), "other files are reported again");
    assert_eq!(kafka.files.edition(), 0);
    assert_eq!(kafka.client().get("sasl.password"), Some(FIRST));
}

#[test]
fn a_folder_of_authorities_and_what_names_no_file_are_not_looked_at() {
    let volume = Volume::new();
    for (authorities, expected) in [("ca.pem", 1), ("certificates", 0)] {
        let settings = volume.settings("127.0.0.1:1", "SSL", &volume.path(authorities));
        assert_eq!(KafkaFiles::of(&settings).paths.len(), expected, "{authorities}");
    }
    assert_eq!(KafkaFiles::of(&volume.settings("127.0.0.1:1", "SSL", "probe")).paths.len(), 0);
}

/// What comes of a replacement, if there is one.
async fn settled(sink: &mut KafkaSink) -> Settled {
    for _ in 0..600 {
        let settled = sink.wait(Duration::from_millis(100)).await;
        if !matches!(settled, Settled::Busy) {
            return settled;
        }
    }
    Settled::Busy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_replaced_while_nothing_is_committed_and_half_a_file_is_waited_for() {
    let (cluster, volume) = (MockCluster::new(1).unwrap(), Volume::new());
    let (_, kafka) = files_at(&volume, &cluster.bootstrap_servers(), "PLAINTEXT");
    let half = || BTreeMap::from([("security.protocol".to_owned(), "PLAIN".to_owned())]);
    let mut sink = KafkaSink::new(Arc::clone(&kafka), 0);
    sink.recover().await.unwrap();
    assert_eq!(settled(&mut sink).await, Settled::Idle);

    kafka.files.replace(half());
    assert!(matches!(settled(&mut sink).await, Settled::Failed(CommitError::Failed(_))), "another one is created");
    assert!(matches!(sink.recover().await, Err(CommitError::Failed(_))));
    let mut first = KafkaSink::new(Arc::clone(&kafka), 1);
    assert!(matches!(first.recover().await, Err(CommitError::Fatal(_))), "of the first one a setting is wrong");
    kafka.files.replace(BTreeMap::new());
    sink.recover().await.unwrap();
    kafka.files.replace(BTreeMap::new());
    assert_eq!(settled(&mut sink).await, Settled::Idle);

    // The process must not end while a client does.
    drop((sink, first));
    testkit::wait_until(Duration::from_secs(60), "the clients have ended", || Arc::strong_count(&kafka) == 1);
}
