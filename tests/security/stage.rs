//! The secured servers, and a scene on them.

use std::sync::LazyLock;

use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use testkit::{
    kafka::{KafkaClient, SecuredKafka},
    process::Exit,
    redis::RedisServer,
    s3::{Guest, S3},
    stack::{SCRAM_USER, authority, secured_kafka},
    tls::Authority,
    wait_until,
    worker::Worker,
};

use crate::{
    page,
    support::{DEADLINE, POLICY, SEGMENTS, Scene, outcome::intent, stop},
};

/// Secrets that no other text has.
pub const KAFKA_PASSWORD: &str = SCRAM_USER.1;
pub const REDIS_PASSWORD: &str = "MARKED-redis-password";
pub const S3_SECRET: &str = "MARKED-s3-secret-key";
pub const S3_KEY: &str = "WEIRWORKER";
/// The builder of segments.
pub const S3_BUILDER: &str = "WEIRBUILDER";
pub const USER: &str = SCRAM_USER.0;
/// The worker's readable prefix in the bucket.
pub const S3_PREFIX: &str = "weir/";

/// The servers. All tests share a Kafka; the others are started by the first test that asks for them, and end with its process.
pub static STAGE: Stage = Stage {
    authority: LazyLock::new(|| authority().unwrap()),
    stranger: LazyLock::new(|| Authority::new().unwrap()),
    kafka: LazyLock::new(|| secured_kafka(&STAGE.authority).unwrap()),
    redis: LazyLock::new(|| RedisServer::start_mutual_tls::<&str>(&STAGE.authority, &[]).unwrap()),
    s3: LazyLock::new(start_s3),
};

pub struct Stage {
    pub authority: LazyLock<Authority>,
    /// Vouches for nobody here.
    pub stranger: LazyLock<Authority>,
    pub kafka: LazyLock<SecuredKafka>,
    pub redis: LazyLock<RedisServer>,
    pub s3: LazyLock<S3>,
}

fn start_s3() -> S3 {
    let of_page = |name: &str| {
        page::block(name).replace("arn:aws:s3:::example-bucket/weir/", &format!("arn:aws:s3:::weir/{S3_PREFIX}"))
    };
    let (worker, builder) = (of_page("s3"), of_page("s3 build"));
    let guests = [
        Guest { access_key: S3_KEY, secret_key: S3_SECRET, policy: &worker },
        Guest { access_key: S3_BUILDER, secret_key: S3_SECRET, policy: &builder },
        Guest { access_key: "NOBODY", secret_key: S3_SECRET, policy: r#"{"Statement": []}"# },
    ];
    S3::start_secured(&STAGE.authority, &guests).unwrap()
}

/// How a worker comes to Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoint {
    /// By SCRAM, with this mechanism and password.
    Scram(&'static str, &'static str),
    /// By a certificate of this name.
    Mutual(&'static str),
}

impl Stage {
    /// A scene with a policy and segments in S3, for those who ask neither Kafka nor Redis.
    pub fn files(&self, name: &str) -> Scene {
        let nobody = (KafkaClient::new("127.0.0.1:1"), vec!["redis://127.0.0.1:1".to_owned()]);
        let mut scene = Scene::bare_on(nobody.0, nobody.1, name, 1, POLICY);
        scene.build_segments(&SEGMENTS);
        self.put_into_s3(&mut scene);
        scene
    }

    /// A scene whose worker reaches everything by TLS and as the user whom the page describes. Nothing is granted at
    /// Kafka yet.
    pub fn scene(&self, name: &str, entry_point: EntryPoint) -> Scene {
        let mut scene = Scene::on(self.kafka.admin().clone(), vec![self.redis.url()], name, 1, POLICY);
        self.come_by(&mut scene, entry_point);
        self.redis_user(&mut scene);
        self.put_into_s3(&mut scene);
        scene
    }

    /// The worker's environment for a door.
    pub fn come_by(&self, scene: &mut Scene, entry_point: EntryPoint) {
        let ca = self.authority.ca_file().display().to_string();
        scene.set("WEIR__KAFKA__PROPERTIES__SSL_CA_LOCATION", ca);
        match entry_point {
            EntryPoint::Scram(mechanism, password) => {
                scene.set("WEIR__KAFKA__BROKERS", self.kafka.scram());
                scene.set("WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SASL_SSL");
                scene.set("WEIR__KAFKA__PROPERTIES__SASL_MECHANISM", mechanism);
                scene.set("WEIR__KAFKA__PROPERTIES__SASL_USERNAME", USER);
                scene.set("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", password);
            }
            EntryPoint::Mutual(name) => {
                let identity = self.authority.client(name).unwrap();
                let (certificate, key) = (identity.certificate.display(), identity.key.display());
                scene.set("WEIR__KAFKA__BROKERS", self.kafka.mutual());
                scene.set("WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SSL");
                scene.set("WEIR__KAFKA__PROPERTIES__SSL_CERTIFICATE_LOCATION", certificate.to_string());
                scene.set("WEIR__KAFKA__PROPERTIES__SSL_KEY_LOCATION", key.to_string());
            }
        }
    }

    /// A Redis user of the scene's own, with the rights of the page.
    fn redis_user(&self, scene: &mut Scene) {
        let identity = self.authority.client("redis-client").unwrap();
        self.redis_acl(&scene.name, &page::redis_rights("redis", &scene.name, REDIS_PASSWORD));
        scene.set("WEIR__REDIS__USERNAME", scene.name.clone());
        scene.set("WEIR__REDIS__PASSWORD", REDIS_PASSWORD);
        scene.set("WEIR__REDIS__CA_FILE", self.authority.ca_file().display().to_string());
        scene.set("WEIR__REDIS__CERT_FILE", identity.certificate.display().to_string());
        scene.set("WEIR__REDIS__KEY_FILE", identity.key.display().to_string());
    }

    pub fn redis_acl(&self, user: &str, words: &[String]) {
        let mut command = vec!["acl", "setuser", user];
        command.extend(words.iter().map(String::as_str));
        assert_eq!(self.redis.cli(&command).unwrap().trim(), "OK", "{command:?}");
    }

    /// Policy and segments in the bucket, read over https.
    fn put_into_s3(&self, scene: &mut Scene) {
        let folder = format!("{S3_PREFIX}{}", scene.name);
        scene.put_segments(self.s3.bucket(), &folder);
        self.s3.bucket().put(&format!("{folder}/policy.toml"), POLICY).unwrap();
        scene.policy = self.s3.bucket().url(&format!("{folder}/policy.toml"));
        scene.set("WEIR__S3__ENDPOINT", self.s3.secured_endpoint().unwrap().to_owned());
        scene.set("WEIR__S3__FORCE_PATH_STYLE", "true");
        scene.set("WEIR__S3__REGION", "us-east-1");
        scene.set("WEIR__S3__CA_FILE", self.authority.ca_file().display().to_string());
        scene.set("AWS_ACCESS_KEY_ID", S3_KEY);
        scene.set("AWS_SECRET_ACCESS_KEY", S3_SECRET);
    }

    /// Grants lines to a user, and waits until the broker applies them.
    pub fn grant(&self, user: &str, lines: &[String]) {
        grant(&self.kafka, &self.authority, user, lines);
    }
}

/// The page's lines of a block for a scene and its instance `i`.
pub fn lines(block: &str, scene: &Scene) -> Vec<String> {
    let name = &scene.name;
    let sends = ["intents", "approved", "suppressed", "refunds", "retries", "undelivered", "deferred-", "waiting-"];
    let others =
        [("send-dead-letters", "dead"), ("delivery-reports", "delivery-reports"), ("app-activity", "activity")];
    let sends = sends.map(|topic| (format!("send-{topic}"), scene.topic(topic)));
    let others = others.map(|(topic, own)| (topic.to_owned(), scene.topic(own)));
    let groups = ["", "-refunds", "-delivery-reports", "-retries", "-activity", "-later"].map(|of| {
        [(format!("weir{of}"), format!("{name}{of}")), (format!("weir{of}/weir-0/"), format!("{name}{of}/i/"))]
    });
    let routes = [("weir-waiting-", "-waiting-"), ("hedwig", "-hedwig")];
    let routes = routes.map(|(group, of)| (group.to_owned(), format!("{name}{of}")));
    let names = sends.into_iter().chain(others).chain(groups.into_iter().flatten()).chain(routes);
    page::acl_lines(block, &names.collect())
}

/// Grants lines to a user of any Kafka that trusts this authority, and waits until the broker applies them.
pub fn grant(kafka: &SecuredKafka, authority: &Authority, user: &str, lines: &[String]) {
    kafka.admin().grant(user, &page::grants(lines)).unwrap();
    let mut words = lines.iter().flat_map(|line| line.split(' '));
    let Some(topic) = words.find(|word| *word == "--topic").and_then(|_| words.next()) else { return };
    let identity = authority.client(user).unwrap();
    let mut config = KafkaClient::new(&kafka.mutual()).config();
    config
        .set("security.protocol", "SSL")
        .set("ssl.ca.location", authority.ca_file().display().to_string())
        .set("ssl.certificate.location", identity.certificate.display().to_string())
        .set("ssl.key.location", identity.key.display().to_string());
    let consumer: BaseConsumer = config.create().unwrap();
    wait_until(DEADLINE, "the broker applies the ACLs", || {
        let metadata = consumer.fetch_metadata(Some(topic), DEADLINE).unwrap();
        metadata.topics()[0].error().is_none()
    });
}

/// Ten sends of ten users without a segment.
pub fn publish(scene: &Scene) {
    let one = |number: usize| intent(&format!("{} {number}", scene.name), format!("user-{number}"), json!({}));
    scene.publish((0..10).map(one));
}

/// The worker decides what is published, and ends with 0.
pub fn works(scene: &Scene) -> Worker {
    publish(scene);
    let mut worker = scene.drained("i");
    stop(&mut worker);
    let approved = scene.output("approved");
    assert_eq!(approved.len(), 10, "{}", worker.log());
    worker
}

/// `weir check`: its exit code and all that it said.
pub fn check(scene: &Scene, env: &[(&str, &str)], arguments: &[&str]) -> (Exit, String) {
    says(scene, env, &[&["check"], arguments].concat())
}

/// A command that ends: its exit code and all that it said.
pub fn says(scene: &Scene, env: &[(&str, &str)], arguments: &[&str]) -> (Exit, String) {
    let own = scene.env.iter().map(|(name, value)| (*name, value.as_str()));
    let env: Vec<(&str, &str)> = own.chain(env.iter().copied()).collect();
    let command = |config: std::path::PathBuf| {
        let mut command: Vec<std::ffi::OsString> = arguments.iter().map(Into::into).collect();
        command.extend(["--config".into(), config.into()]);
        command
    };
    let mut running = Worker::start(crate::support::weir(), &scene.config("i"), command, &env).unwrap();
    let exit = running.wait_exit(DEADLINE).unwrap();
    (exit, running.log())
}
