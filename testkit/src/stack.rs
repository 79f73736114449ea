//! The servers that tests share: started once by `cargo xtask test`, or once a test process.
//!
//! `cargo xtask test` names them in the environment (the constants here). A test process that finds nothing there
//! starts its own on first use; they are statics, never dropped, and end by their guards (see [`crate::process`]).
//! Nobody may break a shared server: start one's own for that.

use std::{path::Path, sync::LazyLock};

use anyhow::{Context, Result};

use crate::{
    kafka::{Kafka, KafkaClient, SecuredKafka},
    redis::{RedisCluster, RedisServer},
    s3::{Bucket, S3},
    tls::Authority,
};

/// Names the Kafka: `127.0.0.1:9092`.
pub const ENV_KAFKA: &str = "WEIR_TEST_KAFKA";
/// Names the nodes of the Redis Cluster: `redis://127.0.0.1:7000,redis://127.0.0.1:7001`.
pub const ENV_REDIS_CLUSTER: &str = "WEIR_TEST_REDIS_CLUSTER";
/// Names the single Redis: `redis://127.0.0.1:6379`.
pub const ENV_REDIS: &str = "WEIR_TEST_REDIS";
/// Names the S3 and its bucket: `http://127.0.0.1:9000/weir`.
pub const ENV_S3: &str = "WEIR_TEST_S3";

/// Names the doors of the secured Kafka ([`SecuredKafka::doors`]).
pub const ENV_SECURED_KAFKA: &str = "WEIR_TEST_SECURED_KAFKA";
/// Names the folder of the authority that it trusts.
pub const ENV_AUTHORITY: &str = "WEIR_TEST_AUTHORITY";
/// Its SCRAM user, and a password that is in no other text.
pub const SCRAM_USER: (&str, &str) = ("scram-user", "MARKED-kafka-password");

/// Whether this Kafka serves other test processes, too: nobody breaks it, and what is left on it stays.
pub fn is_shared(bootstrap: &str) -> bool {
    let is_named = |name: &str| std::env::var(name).is_ok_and(|doors| doors.split(',').next() == Some(bootstrap));
    is_named(ENV_KAFKA) || is_named(ENV_SECURED_KAFKA)
}

/// The authority that the secured Kafka of this process trusts.
pub fn authority() -> Result<Authority> {
    std::env::var_os(ENV_AUTHORITY).map_or_else(Authority::new, |folder| Authority::open(Path::new(&folder)))
}

/// The secured Kafka of this process, which trusts [`authority()`].
pub fn secured_kafka(authority: &Authority) -> Result<SecuredKafka> {
    match std::env::var(ENV_SECURED_KAFKA) {
        Ok(doors) => SecuredKafka::behind(&doors),
        Err(_) => SecuredKafka::start(authority, &[SCRAM_USER]),
    }
}

/// The shared servers of this process; each is started when it is first asked for.
///
/// Asking for a server panics when it cannot be started: this is for tests.
#[derive(Debug, Clone, Copy)]
pub struct Stack;

/// An address, and the server behind it if it is ours.
type Shared<Address, Server> = LazyLock<(Address, Option<Server>)>;

fn shared<Address, Server>(
    env: &str,
    named: impl FnOnce(&str) -> Address,
    start: impl FnOnce() -> Result<(Address, Server)>,
) -> (Address, Option<Server>) {
    if let Ok(text) = std::env::var(env) {
        return (named(&text), None);
    }
    let started = start().unwrap_or_else(|error| panic!("a shared server of the tests does not start: {error:?}"));
    (started.0, Some(started.1))
}

impl Stack {
    pub fn shared() -> Self {
        Self
    }

    pub fn kafka(self) -> &'static KafkaClient {
        static KAFKA: Shared<KafkaClient, Kafka> = LazyLock::new(|| {
            shared(ENV_KAFKA, KafkaClient::new, || Kafka::start(1).map(|kafka| (kafka.client().clone(), kafka)))
        });
        &KAFKA.0
    }

    /// The URLs of all nodes of a Redis Cluster of three primaries with a replica each.
    pub fn redis_cluster(self) -> &'static [String] {
        static CLUSTER: Shared<Vec<String>, RedisCluster> = LazyLock::new(|| {
            let named = |text: &str| text.split(',').map(str::to_owned).collect();
            shared(ENV_REDIS_CLUSTER, named, || RedisCluster::start(3, 1).map(|cluster| (cluster.nodes(), cluster)))
        });
        &CLUSTER.0
    }

    pub fn redis(self) -> &'static str {
        static REDIS: Shared<String, RedisServer> = LazyLock::new(|| {
            shared(ENV_REDIS, str::to_owned, || RedisServer::start::<&str>(&[]).map(|redis| (redis.url(), redis)))
        });
        &REDIS.0
    }

    /// The bucket of an S3 that answers as it should; for faults and counts start an [`S3`] of one's own.
    pub fn s3(self) -> &'static Bucket {
        static SHARED_S3: Shared<Bucket, S3> = LazyLock::new(|| {
            let named = |text: &str| {
                let (endpoint, bucket) = text.rsplit_once('/').unwrap_or((text, "weir"));
                Bucket::new(endpoint, bucket)
            };
            shared(ENV_S3, named, || S3::start().map(|s3| (s3.bucket().clone(), s3)))
        });
        &SHARED_S3.0
    }
}

/// All servers at once, owned: what `cargo xtask test` and `cargo xtask stack` keep up.
#[derive(Debug)]
pub struct Servers {
    pub kafka: Kafka,
    /// Three primaries with a replica each.
    pub cluster: RedisCluster,
    pub redis: RedisServer,
    pub s3: S3,
    /// What tests/security shares, and the authority that it trusts.
    secured: Option<(SecuredKafka, Authority)>,
}

impl Servers {
    /// Starts them all, side by side; what tests/security shares only where that is wanted.
    pub fn start(is_secured: bool) -> Result<Self> {
        std::thread::scope(|scope| {
            let kafka = scope.spawn(|| Kafka::start(1).context("Kafka"));
            let secured = is_secured.then(|| {
                scope.spawn(|| {
                    let authority = Authority::new()?;
                    let kafka = SecuredKafka::start(&authority, &[SCRAM_USER]).context("the secured Kafka")?;
                    anyhow::Ok((kafka, authority))
                })
            });
            let cluster = RedisCluster::start(3, 1).context("the Redis Cluster");
            let redis = RedisServer::start::<&str>(&[]).context("the single Redis");
            let s3 = S3::start().context("the S3");
            let kafka = kafka.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let secured =
                secured.map(|secured| secured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Ok(Self { kafka: kafka?, cluster: cluster?, redis: redis?, s3: s3?, secured: secured.transpose()? })
        })
    }

    /// The environment by which [`Stack::shared`], [`authority()`] and [`secured_kafka()`] find them.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let mut env = vec![
            (ENV_KAFKA, self.kafka.bootstrap().to_owned()),
            (ENV_REDIS_CLUSTER, self.cluster.nodes().join(",")),
            (ENV_REDIS, self.redis.url()),
            (ENV_S3, format!("{}/{}", self.s3.endpoint(), self.s3.bucket().name())),
        ];
        if let Some((kafka, authority)) = &self.secured {
            let folder = authority.folder().display().to_string();
            env.extend([(ENV_SECURED_KAFKA, kafka.doors()), (ENV_AUTHORITY, folder)]);
        }
        env
    }
}
