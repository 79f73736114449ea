//! The promise: where brokers ask for tokens, every client of weir's shows one, and the next in place of one that ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use testkit::{
    kafka::{Record, TokenKafka},
    wait_until,
};
use tokio::task::{block_in_place, spawn_blocking};
use weir::{cli::assemble, config};
use weir_core::{
    basis::time::Time,
    batch::record::Records as _,
    ports::{Sink as _, Source as _},
};
use weir_kafka::{
    client::KafkaOptions,
    committed,
    extents::{self, Span},
    group_progress::GroupProgress,
    new_topics::{self, Holds, NewTopics},
    partition_reader::PartitionReader,
    range::{Between, RangeReader},
    sink::KafkaSink,
    source::KafkaSource,
    tokens::{Token, Tokens},
    topics, transaction,
};

use crate::support::{DEADLINE, SMALLEST};

/// How long most tokens live here.
const LONG: Duration = Duration::from_secs(3600);
/// How long tokens live that end while a test looks on. librdkafka wants the next one after four fifths, and looks once a second.
const SHORT: Duration = Duration::from_secs(5);

/// Gives tokens without a signature, and counts them.
#[derive(Debug)]
struct Unsigned {
    life: Duration,
    given: AtomicU64,
}

impl Unsigned {
    fn living(life: Duration) -> Arc<Self> {
        Arc::new(Self { life, given: AtomicU64::new(0) })
    }

    fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }
}

impl Tokens for Unsigned {
    #[expect(clippy::disallowed_methods, reason = "brokers hold tokens to the true time, and end them by it")]
    fn token(&self) -> Result<Token, String> {
        self.given.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let (begins, ends) = (now.as_secs_f64(), (now + self.life).as_secs_f64());
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let body = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"weir","iat":{begins},"exp":{ends}}}"#));
        let expires_ms = i64::try_from((now + self.life).as_millis()).unwrap();
        Ok(Token { value: format!("{head}.{body}."), principal: "weir".to_owned(), expires_ms })
    }
}

#[derive(Debug)]
struct Ended;

impl Tokens for Ended {
    fn token(&self) -> Result<Token, String> {
        Err("the credentials have ended".to_owned())
    }
}

fn options(kafka: &TokenKafka, tokens: Option<Arc<dyn Tokens>>) -> Arc<KafkaOptions> {
    let text = SMALLEST.replace("b:9092", &kafka.door()).replace("[redis]", "instance = \"one\"\n[redis]");
    let folder = testkit::folder();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, text).unwrap();
    let settings = config::load(&file, std::iter::empty()).unwrap();
    let mut options = assemble::kafka(&settings.kafka);
    for (name, value) in [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")] {
        options.properties.insert(name.to_owned(), value.to_owned());
    }
    options.tokens = tokens;
    Arc::new(options)
}

/// The topics, made over the door.
async fn made(options: &KafkaOptions) {
    let topics = ["i", "a", "s", "d"].map(str::to_owned);
    let how = NewTopics { partitions: 2, shares: 1, retention_ms: 700_000_000 };
    new_topics::create(options, (&topics, Holds::Configured), how).await.unwrap();
}

async fn read_one(source: &mut KafkaSource) {
    let since = Instant::now();
    let mut trouble = None;
    loop {
        assert!(since.elapsed() < DEADLINE, "nothing is read in time: {trouble:?}");
        let mut batch = source.batch();
        match source.poll(&mut batch, 10, Duration::from_millis(100)).await {
            // What passes, passes until the deadline.
            Err(error) => trouble = Some(error),
            Ok(Some(_)) => trouble = source.settle().await.err().or(trouble),
            Ok(None) => {}
        }
        if batch.len() > 0 {
            return;
        }
    }
}

fn reason(options: &KafkaOptions) -> String {
    topics::look(options).map(drop).unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_shows_a_token_says_why_there_is_none_and_shows_the_next_ones_once_it_has_ended() {
    let kafka = TokenKafka::start().unwrap();
    every_client_shows_one(&kafka).await;
    who_lives_longer_shows_the_next_ones(&kafka).await;
}

/// It leaves topics and coordinators.
async fn every_client_shows_one(kafka: &TokenKafka) {
    let refused = [
        (None, "set \"sasl.oauthbearer.method\" = \"oidc\""),
        (Some(Arc::new(Ended) as Arc<dyn Tokens>), "credentials have ended"),
    ];
    let refused = refused.map(|(tokens, expected)| {
        let options = options(kafka, tokens);
        (spawn_blocking(move || reason(&options)), expected)
    });

    let tokens = Unsigned::living(LONG);
    let options = options(kafka, Some(Arc::clone(&tokens) as Arc<dyn Tokens>));
    let mut before = 0;
    let mut showed = |who: &str| {
        let now = tokens.given();
        assert!(now > before, "{who} has asked for no token");
        before = now;
    };
    made(&options).await;
    showed("who makes topics");
    kafka.admin().publish("i", [Record::new("u", "{}").partition(0), Record::new("u", "{}").partition(1)]).unwrap();
    topics::look(&options).unwrap();
    showed("who looks at topics");
    // The coordinator of a group that is new has its partition to load.
    wait_until(DEADLINE, "there is a coordinator", || committed::has_progress(&options).is_ok());
    assert!(!committed::has_progress(&options).unwrap());
    showed("who asks for the group's progress");
    topics::identify(&options, "i").unwrap();
    showed("who identifies a topic");
    transaction::try_one(&options).unwrap();
    showed("who tries a transaction");
    GroupProgress::new(&options, "weir".to_owned()).unwrap().waiting("i").unwrap();
    showed("who reads a group's offsets");
    let extents = extents::extents(&options, "i", Time::from_millis(0).unwrap()).unwrap();
    showed("who asks how far a topic reaches");
    let spans: Vec<Span> =
        extents.iter().map(|extent| Span { partition: extent.partition, from: extent.low, to: extent.high }).collect();
    let read = PartitionReader::new(&options, "i", &spans).unwrap().read(10, Duration::from_secs(20)).unwrap();
    assert!(read.is_some_and(|batch| batch.len() > 0));
    showed("who reads spans");
    assert!(RangeReader::open(&options, "i", Between::default()).unwrap().read().unwrap().is_some());
    showed("who reads a range");
    KafkaSink::new(Arc::clone(&options), 0).recover().await.unwrap();
    showed("a lane's producer");
    read_one(&mut KafkaSource::join(&options).unwrap()).await;
    showed("a lane's consumer");

    for (reason, expected) in refused {
        let reason = reason.await.unwrap();
        assert!(reason.contains("127.0.0.1") && reason.contains(expected), "{reason}");
    }
}

/// A broker ends the connection of a token that ends, so who is still answered then has shown another one. The producer has nothing to
/// do meanwhile.
async fn who_lives_longer_shows_the_next_ones(kafka: &TokenKafka) {
    let tokens = [(); 3].map(|()| Unsigned::living(SHORT));
    let [of_consumer, of_asking, of_producer] =
        tokens.each_ref().map(|tokens| options(kafka, Some(Arc::clone(tokens) as Arc<dyn Tokens>)));
    let start = Instant::now();
    let mut source = KafkaSource::join(&of_consumer).unwrap();
    let progress = GroupProgress::new(&of_asking, "weir".to_owned()).unwrap();
    let mut sink = KafkaSink::new(of_producer, 0);
    while let Err(error) = sink.recover().await {
        assert!(start.elapsed() < DEADLINE, "the producer does not start: {error}");
    }
    let before = tokens.each_ref().map(|tokens| tokens.given());
    // The first look at a client's events gives it one more than the one that it was made with.
    let have_shown_more = || tokens.iter().zip(before).all(|(tokens, before)| tokens.given() >= before + 2);
    let mut last = false;
    while !last {
        let given = tokens.each_ref().map(|tokens| tokens.given());
        assert!(start.elapsed() < DEADLINE, "consumer, asking client, producer: {before:?}, then {given:?}");
        // Once more after the first tokens have ended.
        last = have_shown_more() && start.elapsed() > SHORT + Duration::from_secs(1);
        kafka.admin().publish("i", [Record::new("u", "{}").partition(0)]).unwrap();
        read_one(&mut source).await;
        block_in_place(|| wait_until(DEADLINE, "the asking client is answered", || progress.waiting("i").is_ok()));
    }
}
