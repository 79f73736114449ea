//! One Redis server, and what may go wrong with it: nothing is decided twice, nothing wrongly, and it comes back.
#![expect(clippy::disallowed_types, reason = "a test tells its network what to do; no lane")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::redis_support::{
    DAY_MS, admit, admit_all, at, batch, behind_proxy, cap, fresh_store, lost, not_recorded, on_channel, opened, own,
    own_store, patiently, place_of, request, sent, server, shard_of, store, temporary,
};
use redis::RedisResult;
use testkit::{
    proxy::Mode,
    redis::{RedisServer, connect},
};
use weir_core::{
    basis::shard::{IdHash, OriginMark, UserHash},
    history::{
        Entry,
        admit::AdmitRequest,
        decide::{AdmitVerdict, Answer, RecordWhen},
        pack, unpack,
    },
    intent::class::{Campaign, Kind},
    ports::StoreError,
};
use weir_redis::{Boxed, Link, Network, NodeAddr, RedisOptions, RedisStore, RetryCause, Tcp};

/// How long a server may take to answer a test.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// A connection for arguments that are no text.
fn connection(server: &RedisServer) -> redis::Connection {
    connect(ANSWERED_WITHIN, &redis::Client::open(server.url()).unwrap()).unwrap()
}

/// How many entries lie in the store for a user.
fn entries(server: &RedisServer, store: &RedisStore, user: &str) -> usize {
    let (key, field) = place_of(store.keyspace(), UserHash::of(user));
    let bytes: Option<Vec<u8>> = redis::cmd("HGET").arg(key).arg(field).query(&mut connection(server)).unwrap();
    unpack(&bytes.unwrap_or_default()).unwrap().len()
}

/// Writes a user's history, by the key that is returned.
fn write(server: &RedisServer, store: &RedisStore, user: UserHash, history: &[u8]) -> String {
    let (key, field) = place_of(store.keyspace(), user);
    redis::cmd("HSET").arg(&key).arg(field).arg(history).query::<()>(&mut connection(server)).unwrap();
    key
}

fn users(count: u32) -> Vec<AdmitRequest<'static>> {
    (0..count).map(|number| request(&format!("u-{number}"), number)).collect()
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_waited_for_and_nothing_is_written_meanwhile() {
    let server = server();
    let mut store = fresh_store(&RedisOptions { tries: 2, ..own(&server) }).await;
    let order = |command: &str| server.query::<()>(&command.split(' ').collect::<Vec<_>>()).unwrap();
    for (code, breaks, mends) in [
        ("READONLY", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("NOREPLICAS", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("OOM", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ] {
        let requests = (0..20).map(|number| request(&format!("{code}-{number}"), number)).collect();
        let (asked, before) = (batch(at(0), &[cap(1, 1000)], requests), server.query::<u64>(&["DBSIZE"]).unwrap());
        order(breaks);
        let (answers, result) = admit(&mut store, &asked).await;
        assert!(not_recorded(result).contains(code), "{code}");
        assert!(answers.iter().all(Option::is_none), "{code}");
        assert_eq!(server.query::<u64>(&["DBSIZE"]).unwrap(), before, "{code}");
        order(mends);
        let answers = admit_all(&mut store, &asked).await;
        assert!(answers.iter().all(|answer| answer.verdict == AdmitVerdict::Allowed), "{code}: {answers:?}");
    }
}

#[tokio::test]
async fn a_server_that_still_loads_is_waited_for() {
    // Redis 6.2 allows it to everybody, and does not know the setting.
    let server = RedisServer::start(&["--enable-debug-command", "yes"]).unwrap_or_else(|_| server());
    let mut store = fresh_store(&RedisOptions { tries: 2, ..own(&server) }).await;
    admit_all(&mut store, &batch(at(0), &[cap(1, 1000)], users(1))).await;
    server.query::<()>(&["DEBUG", "POPULATE", "400", "filler", "4096"]).unwrap();
    server.query::<()>(&["CONFIG", "SET", "rdbcompression", "no"]).unwrap();
    server.query::<()>(&["CONFIG", "SET", "loading-process-events-interval-bytes", "4096"]).unwrap();
    server.query::<()>(&["CONFIG", "SET", "key-load-delay", "5000"]).unwrap();
    let mut reloading = connection(&server);
    let reload = std::thread::spawn(move || redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut reloading).unwrap());
    let loading = patiently(Duration::from_secs(20), async || {
        let (_, result) = admit(&mut store, &batch(at(1), &[cap(1, 1000)], users(1))).await;
        result.err().map(|error| error.to_string())
    });
    let said = loading.await.unwrap();
    assert!(said.contains("LOADING"), "{said}");
    let answers = admit_all(&mut store, &batch(at(1), &[cap(1, 1000)], users(1))).await;
    assert_eq!((answers[0].verdict, answers[0].at), (AdmitVerdict::Replayed, at(0)));
    reload.join().unwrap();
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_found_again() {
    silence().await;
}

#[tokio::test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
async fn a_silent_server_is_given_up_in_bounded_time() {
    let longest = silence().await;
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

/// The longest that a silent server was asked.
async fn silence() -> Duration {
    let mut longest = Duration::ZERO;
    let mut server = server();
    let patience = Duration::from_millis(200);
    let patient = own(&server);
    let opened = opened(&patient).await.unwrap();
    let options = RedisOptions { tries: 2, response_timeout: patience, connect_timeout: patience, ..patient };
    let mut store = store(&options, &opened);
    admit_all(&mut store, &batch(at(0), &[cap(1, 1000)], users(1))).await;
    for pass in 0..2 {
        if pass == 0 {
            server.freeze();
        } else {
            server.query::<()>(&["CLIENT", "PAUSE", "5000", "ALL"]).unwrap();
        }
        let started = Instant::now();
        let number = 1000 + pass;
        let requests = vec![request(&format!("p-{pass}"), number)];
        let (_, result) = admit(&mut store, &batch(at(0), &[cap(1, 1000)], requests.clone())).await;
        temporary(result);
        longest = longest.max(started.elapsed());
        server.thaw();
        let answers = admit_all(&mut store, &batch(at(0), &[cap(1, 1000)], requests)).await;
        assert_eq!(sent(&answers), 1);
        assert_eq!(entries(&server, &store, &format!("p-{pass}")), 1);
    }
    assert!(store.stats().errors(RetryCause::Timeout) > 0);
    longest
}

#[tokio::test]
async fn an_emptied_server_is_not_taken_for_one_where_nothing_was_sent() {
    let (server, mut store) = own_store().await;
    admit_all(&mut store, &batch(at(0), &[cap(1, DAY_MS)], users(200))).await;
    server.query::<()>(&["FLUSHALL"]).unwrap();
    let (answers, result) = admit(&mut store, &batch(at(1), &[cap(1, DAY_MS)], users(200))).await;
    let (shards, message) = lost(result);
    assert_eq!(shards, (0..16).collect::<Vec<u16>>());
    assert!(message.contains("restore"));
    assert!(answers.iter().all(Option::is_none));
    assert_eq!(server.query::<u64>(&["DBSIZE"]).unwrap(), 0, "something was written");
    assert!(matches!(store.health().await, Err(StoreError::LostHistory { .. })));
}

/// A network on which a key of a server is set while a call without a reply waits to be made again: once.
#[derive(Debug)]
struct SetsMeanwhile {
    server: String,
    key: Mutex<Option<String>>,
}

impl Network for SetsMeanwhile {
    fn connect<'a>(&'a self, addr: &'a NodeAddr, options: &'a RedisOptions) -> Boxed<'a, RedisResult<Box<dyn Link>>> {
        Box::pin(async move { Tcp.connect(addr, options).await })
    }

    fn sleep(&self, wait: Duration) -> Boxed<'static, ()> {
        if let Some(key) = self.key.lock().unwrap().take() {
            let client = redis::Client::open(self.server.as_str()).unwrap();
            let mut connection = connect(ANSWERED_WITHIN, &client).unwrap();
            redis::cmd("SET").arg(key).arg("of another keyspace").query::<()>(&mut connection).unwrap();
        }
        Tcp.sleep(wait)
    }

    fn passed(&self) -> Duration {
        Tcp.passed()
    }
}

#[tokio::test]
async fn what_may_have_been_recorded_before_its_shard_lost_its_epoch_is_not_taken_for_unrecorded() {
    let server = server();
    let (proxy, proxied) = behind_proxy(&server.url()).await;
    let network = Arc::new(SetsMeanwhile { server: server.url(), key: Mutex::new(None) });
    let mut store = fresh_store(&RedisOptions { network: Arc::<SetsMeanwhile>::clone(&network), ..proxied }).await;
    let caps = [cap(9, DAY_MS)];
    admit_all(&mut store, &batch(at(0), &caps, vec![request("u", 1)])).await;
    let epoch_key = store.keyspace().epoch_key(shard_of(store.keyspace(), "u"));
    *network.key.lock().unwrap() = Some(epoch_key.clone());
    proxy.set(Mode::LoseReply);
    let asked = batch(at(1), &caps, vec![request("u", 2)]);
    let (_, result) = admit(&mut store, &asked).await;
    temporary(result);
    assert_eq!(entries(&server, &store, "u"), 2, "it is recorded");
    let (_, result) = admit(&mut store, &asked).await;
    assert!(matches!(result, Err(StoreError::LostHistory { .. })), "nothing else is asked for: {result:?}");
    server.query::<()>(&["SET", &epoch_key, store.keyspace().epoch()]).unwrap();
    let answers = admit_all(&mut store, &asked).await;
    assert_eq!((answers[0].verdict, answers[0].at), (AdmitVerdict::Replayed, at(1)));
}

#[tokio::test]
async fn a_wiped_table_of_names_holds_up_only_sends_with_new_names() {
    let (server, mut store) = own_store().await;
    let named = |user: &str, number, channel| {
        let mut request = request(user, number);
        request.class.channel = Some(channel);
        request
    };
    admit_all(&mut store, &batch(at(0), &[], vec![named("a", 1, "push")])).await;
    server.query::<()>(&["DEL", store.keyspace().kinds_key()]).unwrap();
    let requests = vec![named("a", 2, "push"), named("b", 3, "email"), named("b", 4, "push")];
    let (answers, result) = admit(&mut store, &batch(at(0), &[], requests)).await;
    assert!(matches!(result, Err(StoreError::LostHistory { .. })), "{result:?}");
    let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
    assert_eq!(answered, [true, false, false], "the later send of b must not overtake the earlier");
}

#[tokio::test]
async fn a_history_that_something_else_wrote_holds_up_its_user_only() {
    let server = server();
    let mut store = fresh_store(&RedisOptions { users: 1, ..own(&server) }).await;
    admit_all(&mut store, &batch(at(0), &[], users(64))).await;
    let key = write(&server, &store, UserHash::of("u-5"), b"foreign");
    let (answers, result) = admit(&mut store, &batch(at(0), &[], users(64))).await;
    assert!(not_recorded(result).contains(&key));
    let open: Vec<usize> = answers.iter().enumerate().filter(|(_, a)| a.is_none()).map(|(place, _)| place).collect();
    assert_eq!(open, [5]);
}

#[tokio::test]
async fn keys_outlive_the_history_and_not_for_ever() {
    let (server, mut store) = own_store().await;
    admit_all(&mut store, &batch(at(0), &[], users(20))).await;
    for user in 0..20 {
        let (key, _) = place_of(store.keyspace(), UserHash::of(&format!("u-{user}")));
        let left: i64 = server.query(&["PTTL", &key]).unwrap();
        assert!((16 * DAY_MS..=17 * DAY_MS).contains(&left), "{left}");
    }
    // The first send in a block of 8 days renews, later ones do not. When a key's blocks begin is its own.
    let (key, _) = place_of(store.keyspace(), UserHash::of("u-0"));
    let mut renewed_on = Vec::new();
    for day in 1..=16_u32 {
        server.query::<()>(&["PEXPIRE", &key, "1000000"]).unwrap();
        admit_all(&mut store, &batch(at(i64::from(day) * DAY_MS), &[], vec![request("u-0", 777 + day)])).await;
        let left: i64 = server.query(&["PTTL", &key]).unwrap();
        if left > 1_000_000 {
            assert!(left > 16 * DAY_MS, "{left}");
            renewed_on.push(day);
        }
    }
    assert!(renewed_on.len() == 2 && renewed_on[1] - renewed_on[0] == 8, "{renewed_on:?}");
}

#[tokio::test]
async fn ten_thousand_sends_of_one_user_keep_their_order_and_a_call_does_a_bounded_work() {
    let (server, mut store) = own_store().await;
    let caps = [cap(7000, DAY_MS), on_channel(20_000, "push")];
    let requests: Vec<AdmitRequest<'_>> = (0..10_000)
        .map(|number| {
            let mut request = request("somebody", number);
            request.class.channel = Some("push");
            request.record = if number < 9000 { RecordWhen::Always } else { RecordWhen::IfAllowed };
            request
        })
        .collect();
    let answers: Vec<Answer> = admit_all(&mut store, &batch(at(0), &caps, requests)).await;
    let verdicts = answers.iter().enumerate().map(|(place, answer)| (place, answer.verdict));
    for (place, verdict) in verdicts {
        let used = u32::try_from(place.min(9000)).unwrap();
        let expected = if place < 7000 {
            AdmitVerdict::Allowed
        } else {
            AdmitVerdict::Denied { cap: 0, used, blocking: Some(at(0)) }
        };
        assert_eq!(verdict, expected, "ask {place}");
    }
    assert_eq!(entries(&server, &store, "somebody"), 9000);
    assert!(store.stats().most_items() <= 32, "{}", store.stats().most_items());
    assert!(store.stats().errors(RetryCause::PutOff) > 0, "what a call does is bounded, however long the history");
}

/// Gives each of these users a history of 3,000 sends.
fn give_long_histories(server: &RedisServer, store: &RedisStore, requests: &[AdmitRequest<'_>]) {
    let (at, origin, kind, campaign) = (at(0), OriginMark(0), Kind::NONE, Campaign::NONE);
    let entry = |number: u32| Entry { at, id: IdHash(number.into()), origin, kind, campaign, cost: 1 };
    let history = pack(&(0..3000).map(entry).collect::<Vec<_>>());
    for request in requests {
        write(server, store, request.user, &history);
    }
}

#[tokio::test]
async fn a_call_that_meets_many_long_histories_puts_off_the_rest_and_later_calls_are_smaller() {
    let server = server();
    let mut store = fresh_store(&RedisOptions { shards: 1, ..own(&server) }).await;
    give_long_histories(&server, &store, &users(20));
    let mut put_off = Vec::new();
    for _ in 0..12 {
        let before = store.stats().errors(RetryCause::PutOff);
        let (answers, result) = admit(&mut store, &batch(at(1), &[cap(3000, DAY_MS)], users(20))).await;
        result.unwrap();
        let denied = AdmitVerdict::Denied { cap: 0, used: 3000, blocking: Some(at(0)) };
        assert!(answers.iter().all(|answer| answer.unwrap().verdict == denied), "{answers:?}");
        put_off.push(store.stats().errors(RetryCause::PutOff) - before);
    }
    assert!(put_off[0] > 0, "the work of a call is bounded");
    assert_eq!(put_off[8..], [0; 4], "calls have become as small as these histories need: {put_off:?}");
}

#[tokio::test]
async fn a_user_whose_own_sends_are_too_many_for_a_call_makes_nobody_elses_calls_smaller() {
    let server = server();
    let mut store = fresh_store(&RedisOptions { shards: 32, ..own(&server) }).await;
    give_long_histories(&server, &store, &[request("somebody", 0)]);
    let caps = [on_channel(100_000, "push")];
    let mut put_off = 0;
    for round in 0..5 {
        let own = (0..100).map(|number| request("somebody", 1_000_000 + 100 * round + number));
        admit_all(&mut store, &batch(at(1), &caps, users(400).into_iter().chain(own).collect())).await;
        put_off = store.stats().errors(RetryCause::PutOff);
    }
    assert!(put_off > 0, "this user's sends were put off");
    let before = store.stats().calls();
    admit_all(&mut store, &batch(at(2), &caps, users(400))).await;
    assert_eq!(store.stats().calls() - before, 32, "one call a shard, as ever");
}

#[tokio::test]
async fn writes_count_only_once_enough_replicas_have_them() {
    let primary = server();
    let port = primary.port().to_string();
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]).unwrap();
    let options =
        RedisOptions { wait_replicas: 1, tries: 2, response_timeout: Duration::from_secs(1), ..own(&primary) };
    testkit::wait_until(Duration::from_secs(20), "the replica is in step", || {
        primary.query::<String>(&["INFO", "replication"]).unwrap().contains("state=online")
    });
    let mut store = fresh_store(&options).await;
    let requests = vec![request("somebody", 1)];
    let answers = admit_all(&mut store, &batch(at(0), &[cap(1, 1000)], requests)).await;
    assert_eq!(answers[0].verdict, AdmitVerdict::Allowed);
    assert_eq!(entries(&replica, &store, "somebody"), 1);

    drop(replica);
    let requests = vec![request("somebody else", 1)];
    let (answers, result) = admit(&mut store, &batch(at(0), &[cap(1, 1000)], requests.clone())).await;
    assert!(temporary(result).contains("0 of 1 replicas"));
    assert_eq!(answers, [None]);

    // The send is written already; the replay writes it again, so that the wait covers it on any connection.
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]).unwrap();
    let mut other = fresh_store(&options).await;
    let answers = admit_all(&mut other, &batch(at(5), &[cap(1, 1000)], requests)).await;
    assert_eq!(answers[0].verdict, AdmitVerdict::Replayed);
    assert_eq!(entries(&replica, &other, "somebody else"), 1);
}
