//! The promise: Kafka's password, authorities, certificate and key may be replaced while weir runs. Every intent comes out once, each
//! client of the process is replaced, and rejected files change nothing.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{
    kafka::{Record, SecuredKafka},
    redis::RedisServer,
    scratch::Scratch,
    tls::{Authority, Identity},
    wait_until,
    worker::Worker,
};

use crate::{
    stage::{USER, grant, lines},
    support::{
        DEADLINE, POLICY, Scene,
        http::{get, wait_whole},
        outcome::intent,
        stop,
    },
};

const FIRST: &str = "MARKED-first-password";
const SECOND: &str = "MARKED-second-password";
const THIRD: &str = "MARKED-third-password";
const WRONG: &str = "MARKED-wrong-password";
/// How often a worker looks at its files here. It takes replaced ones up within four times as long, once Kafka accepts them.
const REFRESH: &str = "100ms";
/// What a worker logs when it replaces its clients, then each consumer and each producer, and when it rejects files.
const REPLACED: &str = "weir replaces its Kafka clients";
const REJOINED: &str = "joining the group with a new consumer";
const TAKES_OVER: &str = "a new producer takes over";
const KEPT: &str = "weir keeps its Kafka clients";

/// A volume as Kubernetes mounts it: all files are replaced at once, by another link.
struct Volume {
    folder: Scratch,
    replaced: usize,
}

impl Volume {
    fn new(files: &[(&str, String)]) -> Self {
        let mut volume = Self { folder: testkit::folder(), replaced: 0 };
        for (name, _) in files {
            symlink(Path::new("..data").join(name), volume.folder.path().join(name)).unwrap();
        }
        volume.replace(files);
        volume
    }

    fn replace(&mut self, files: &[(&str, String)]) {
        self.replaced += 1;
        let content = format!("..{}", self.replaced);
        std::fs::create_dir(self.folder.path().join(&content)).unwrap();
        for (name, text) in files {
            std::fs::write(self.folder.path().join(&content).join(name), text).unwrap();
        }
        let link = self.folder.path().join("..new");
        symlink(content, &link).unwrap();
        std::fs::rename(link, self.folder.path().join("..data")).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn files(password: &str, authorities: &[&Authority], identity: &Identity, key: &Path) -> [(&'static str, String); 4] {
    let authorities: String = authorities.iter().map(|authority| text(&authority.ca_file())).collect();
    [
        ("password", format!("{password}\n")),
        ("ca.pem", authorities),
        ("tls.crt", text(&identity.certificate)),
        ("tls.key", text(key)),
    ]
}

/// A Kafka of the test's own whose authority is about to be replaced: it trusts both.
struct Ground {
    kafka: SecuredKafka,
    redis: RedisServer,
    volume: Volume,
    before: Authority,
    after: Authority,
    folder: Scratch,
}

impl Ground {
    fn start() -> Self {
        let (before, after) = (Authority::new().unwrap(), Authority::new().unwrap());
        let folder = testkit::folder();
        let [own, trusted] = broker_files(&folder);
        std::fs::copy(before.server("kafka").unwrap().both, &own).unwrap();
        std::fs::write(&trusted, text(&before.ca_file()) + &text(&after.ca_file())).unwrap();
        let kafka = SecuredKafka::start_with_files(&own, &trusted, &[(USER, FIRST)]).unwrap();
        let identity = before.client(USER).unwrap();
        let volume = Volume::new(&files(FIRST, &[&before], &identity, &identity.key));
        Self { kafka, redis: RedisServer::start::<&str>(&[]).unwrap(), volume, before, after, folder }
    }

    fn scene(&self, name: &str, env: &[(&'static str, String)]) -> Scene {
        let mut scene = Scene::on(self.kafka.admin().clone(), vec![self.redis.url()], name, 2, POLICY);
        scene.set("WEIR__KAFKA__REFRESH", REFRESH);
        scene.set("WEIR__KAFKA__PROPERTIES__SSL_CA_LOCATION", self.volume.path("ca.pem"));
        scene.env.extend_from_slice(env);
        scene
    }

    /// Grants what these blocks of the page have.
    fn grant(&self, scene: &Scene, blocks: &[&str]) {
        let granted: Vec<String> = blocks.iter().flat_map(|block| lines(block, scene)).collect();
        grant(&self.kafka, &self.before, USER, &granted);
    }

    fn by_password(&self) -> Scene {
        let scene = self.scene(
            "by-password",
            &[
                ("WEIR__KAFKA__BROKERS", self.kafka.scram()),
                ("WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SASL_SSL".into()),
                ("WEIR__KAFKA__PROPERTIES__SASL_MECHANISM", "SCRAM-SHA-512".into()),
                ("WEIR__KAFKA__PROPERTIES__SASL_USERNAME", USER.into()),
                ("WEIR__KAFKA__PROPERTY_FILES__SASL_PASSWORD", self.volume.path("password")),
            ],
        );
        self.grant(&scene, &["kafka run"]);
        scene
    }

    /// It reads refunds and defers, so that its worker has clients of every kind.
    fn by_certificate(&self) -> Scene {
        let mut scene = self.scene(
            "by-certificate",
            &[
                ("WEIR__KAFKA__BROKERS", self.kafka.mutual()),
                ("WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SSL".into()),
                ("WEIR__KAFKA__PROPERTIES__SSL_CERTIFICATE_LOCATION", self.volume.path("tls.crt")),
                ("WEIR__KAFKA__PROPERTIES__SSL_KEY_LOCATION", self.volume.path("tls.key")),
            ],
        );
        scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 1);
        scene.defer(1);
        self.grant(&scene, &["kafka run", "kafka refunds", "kafka deferred"]);
        scene
    }

    /// Gives the broker a certificate of the new authority, and trust in that one alone; closes all connections.
    fn end_the_authority_of_before(&mut self) {
        let [own, trusted] = broker_files(&self.folder);
        std::fs::copy(self.after.server("kafka").unwrap().both, own).unwrap();
        std::fs::copy(self.after.ca_file(), trusted).unwrap();
        self.kafka.restart().unwrap();
    }
}

fn broker_files(folder: &Scratch) -> [PathBuf; 2] {
    ["broker.pem", "trusted.pem"].map(|name| folder.path().join(name))
}

fn load_intent(number: usize) -> Record {
    intent(&format!("load-{number}"), format!("user-{number}"), json!({}))
}

/// Ends the load, also where the test fails meanwhile.
struct EndsLoad<'s>(&'s AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Publishes a hundred intents a second meanwhile; gives how many.
fn under_load(scene: &Scene, meanwhile: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    let publish = || {
        let publisher = scene.kafka.publisher(&scene.topic("intents")).unwrap();
        let mut count = 0;
        while !stop.load(Ordering::Acquire) {
            (count..count + 5).for_each(|number| publisher.send(&load_intent(number)).unwrap());
            count += 5;
            publisher.serve(Instant::now() + Duration::from_millis(50));
        }
        publisher.finish().unwrap();
        count
    };
    thread::scope(|scope| {
        let load = scope.spawn(publish);
        let ends = EndsLoad(&stop);
        meanwhile();
        drop(ends);
        load.join().unwrap()
    })
}

fn says(worker: &Worker, words: &str) -> usize {
    worker.log().matches(words).count()
}

fn wait_progress(scene: &Scene) {
    let before = scene.done();
    wait_until(DEADLINE, "intents are decided", || scene.done() > before + 50);
}

/// Waits until the consumers and producers of so many members of groups are replaced.
fn wait_replaced(worker: &Worker, members: usize) {
    wait_until(DEADLINE, "all clients are replaced", || {
        [REJOINED, TAKES_OVER].iter().all(|words| says(worker, words) >= members)
    });
}

/// Each intent has one record, no secret is in the log, and the worker has not ended.
fn check_outcome(scene: &Scene, worker: &mut Worker, published: usize) {
    assert_eq!(worker.exit(), None);
    assert_eq!(scene.decisions().len(), published, "each intent has one record");
    assert!(!worker.log().contains("MARKED"), "a secret is in the log");
}

#[test]
fn a_password_is_replaced_under_load_and_a_wrong_one_changes_nothing() {
    let mut ground = Ground::start();
    let scene = ground.by_password();
    let mut worker = scene.worker("i");
    wait_whole(&worker);
    let identity = ground.before.client(USER).unwrap();
    let published = under_load(&scene, || {
        wait_progress(&scene);
        ground.volume.replace(&files(WRONG, &[&ground.before], &identity, &identity.key));
        wait_until(DEADLINE, "the password is refused", || says(&worker, KEPT) > 0);
        wait_progress(&scene);
        assert_eq!(says(&worker, REPLACED), 0);

        // The first password lets nobody in any more.
        ground.kafka.admin().set_scram_password(USER, SECOND).unwrap();
        ground.volume.replace(&files(SECOND, &[&ground.before], &identity, &identity.key));
        wait_replaced(&worker, 1);
        wait_progress(&scene);
    });
    scene.drain(&mut worker);
    wait_whole(&worker);
    assert_eq!(says(&worker, REPLACED), 1);
    check_outcome(&scene, &mut worker, published);

    // SIGTERM ends a worker whose clients are being replaced as it ends any other.
    ground.kafka.admin().set_scram_password(USER, THIRD).unwrap();
    ground.volume.replace(&files(THIRD, &[&ground.before], &identity, &identity.key));
    wait_until(DEADLINE, "clients are replaced once more", || says(&worker, REPLACED) == 2);
    stop(&mut worker);
    assert!(!worker.log().contains("MARKED"), "a secret is in the log");
}

#[test]
fn authority_certificate_and_key_are_replaced_under_load_and_nothing_needs_the_ones_of_before() {
    /// A lane of intents, one of what is due, one that moves it on, and the reader of refunds.
    const MEMBERS: usize = 4;
    let mut ground = Ground::start();
    let scene = ground.by_certificate();
    let mut worker = scene.worker("i");
    wait_whole(&worker);
    let published = under_load(&scene, || {
        wait_progress(&scene);
        // The certificate has been replaced, its key has not yet.
        let before = ground.before.client(USER).unwrap();
        let after = ground.after.client(USER).unwrap();
        ground.volume.replace(&files(FIRST, &[&ground.before], &after, &before.key));
        wait_until(DEADLINE, "the files are refused", || says(&worker, KEPT) > 0);
        wait_progress(&scene);
        assert_eq!(says(&worker, REPLACED), 0);

        ground.volume.replace(&files(FIRST, &[&ground.before, &ground.after], &after, &after.key));
        wait_replaced(&worker, MEMBERS);
        wait_progress(&scene);
    });
    scene.drain(&mut worker);
    wait_whole(&worker);
    assert_eq!(says(&worker, REPLACED), 1);

    // Who still had the certificate or the trust of before would not get in any more.
    ground.end_the_authority_of_before();
    let counted = get(&worker, "/v1/deferred");
    scene.publish((published..published + 20).map(load_intent));
    scene.kafka.publish(&scene.topic("refunds"), [Record::keyless("no refund")]).unwrap();
    scene.drain(&mut worker);
    wait_until(DEADLINE, "the reader of refunds is back", || scene.count("dead") == 1);
    wait_until(DEADLINE, "deferred intents are counted again", || get(&worker, "/v1/deferred") != counted);
    wait_whole(&worker);
    check_outcome(&scene, &mut worker, published + 20);
}
