//! A keyspace is made once, whoever begins it, and nobody works on one that is not theirs.

use std::sync::Arc;

use crate::redis_support::{
    admit, at, batch, cap, fatal, fresh_store, lost, opened, options, own, own_keyspace, place_of, request, server,
    store, temporary,
};
use arc_swap::ArcSwap;
use testkit::{redis::RedisServer, stack::Stack, unique};
use weir_core::{
    history::{admit::AdmitBatch, decide::AdmitVerdict},
    ports::StoreError,
};
use weir_redis::{
    Eviction, FORMAT, KeyspaceSeed, LISTPACK_VALUE_BYTES, Opened, Password, Passwords, RedisOptions, TlsFiles, Tuning,
    WhenMissing, open,
};

/// Lets the user `weir` in by this password alone.
fn only(server: &RedisServer, password: &str) {
    let user = ["ACL", "SETUSER", "weir", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
    server.query::<()>(&user).unwrap();
}

/// As that user.
fn as_weir(server: &RedisServer, password: Password) -> RedisOptions {
    RedisOptions { username: Some("weir".to_owned()), password: Some(password), tries: 2, ..own(server) }
}

fn one_of(user: &str) -> AdmitBatch<'static> {
    batch(at(0), &[cap(1, 1000)], vec![request(user, 1)])
}

#[tokio::test]
async fn many_first_starts_at_once_agree_on_one_keyspace() {
    for urls in [vec![Stack::shared().redis().to_owned()], Stack::shared().redis_cluster().to_vec()] {
        let options = options(&urls);
        let starts: Vec<_> = (0..12)
            .map(|_| {
                let options = options.clone();
                tokio::spawn(async move { opened(&options).await.unwrap() })
            })
            .collect();
        let mut epochs = Vec::new();
        for start in starts {
            let opened = start.await.unwrap();
            assert_eq!(opened.lost, Vec::<u16>::new());
            epochs.push(opened.keyspace.epoch().to_owned());
        }
        epochs.dedup();
        assert_eq!(epochs.len(), 1);
    }
}

#[tokio::test]
async fn one_who_only_looks_makes_nothing_and_a_creation_that_stopped_half_way_is_finished_by_the_next_start() {
    let server = server();
    let options = own(&server);
    let look = async || {
        let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: at(0) };
        fatal(open(&Arc::new(options.clone()), &Arc::default(), WhenMissing::Refuse, keyspace_seed).await)
    };
    assert!(look().await.contains("weir check --create"));
    assert_eq!(server.query::<u64>(&["DBSIZE"]).unwrap(), 0);
    let made = opened(&options).await.unwrap().keyspace;
    server.query::<()>(&["HSET", made.meta_key(), "state", "creating"]).unwrap();
    for shard in 5..16 {
        server.query::<()>(&["DEL", &made.epoch_key(shard)]).unwrap();
    }
    server.query::<()>(&["DEL", made.kinds_key()]).unwrap();

    assert!(look().await.contains("not finished"));
    let again = opened(&options).await.unwrap();
    assert_eq!(again.keyspace.epoch(), made.epoch());
    assert_eq!(again.lost, Vec::<u16>::new());
    let state: String = server.query(&["HGET", made.meta_key(), "state"]).unwrap();
    assert_eq!(state, "ready");
}

#[tokio::test]
async fn another_shape_or_maker_is_refused_and_says_what_to_do() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;

    let more = RedisOptions { shards: 32, ..options.clone() };
    let said = fatal(opened(&more).await);
    assert!(said.contains("redis.shards is 32") && said.contains("made with 16"), "{said}");
    let longer = RedisOptions { history_ms: 32 * 86_400_000, ..options.clone() };
    let said = fatal(opened(&longer).await);
    assert!(said.contains("redis.history is 32d") && said.contains("weir rebuild --history 32d"), "{said}");
    let shorter = RedisOptions { history_ms: 86_400_000, ..options.clone() };
    let warnings = opened(&shorter).await.unwrap().warnings;
    assert!(warnings.iter().any(|said| said.contains("redis.history = \"8d\"")), "{warnings:?}");
    // The number of keys a shard is the keyspace's own, whatever the setting says later.
    let grown = RedisOptions { users: 1_000_000, ..options.clone() };
    assert_eq!(opened(&grown).await.unwrap().keyspace.meta().layout, keyspace.meta().layout);

    server.query::<()>(&["HSET", keyspace.meta_key(), "format", "weir/99"]).unwrap();
    let said = fatal(opened(&options).await);
    assert!(said.contains("weir/99") && said.contains(FORMAT) && said.contains("redis.prefix"), "{said}");
    server.query::<()>(&["DEL", keyspace.meta_key()]).unwrap();
    let said = fatal(opened(&options).await);
    assert!(said.contains("is gone, though 16 of 16 shards"), "{said}");
    server.query::<()>(&["SET", keyspace.meta_key(), "something of somebody"]).unwrap();
    let said = fatal(opened(&options).await);
    assert!(said.contains("not a keyspace of this weir"), "{said}");
}

#[tokio::test]
async fn a_shard_without_its_epoch_is_named_at_the_start_and_by_health() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    server.query::<()>(&["DEL", &keyspace.epoch_key(3)]).unwrap();
    server.query::<()>(&["SET", &keyspace.epoch_key(7), "of another keyspace"]).unwrap();
    let opened = opened(&options).await.unwrap();
    assert_eq!(opened.lost, [3, 7]);
    let mut store = store(&options, &opened);
    let (shards, message) = lost(store.health().await);
    assert_eq!(shards, [3, 7]);
    assert!(message.contains("restore"));
    for shard in [3, 7] {
        server.query::<()>(&["SET", &keyspace.epoch_key(shard), keyspace.epoch()]).unwrap();
    }
    store.health().await.unwrap();

    // A loss later on is seen without an intent, whichever shard it is.
    for shard in 0..keyspace.meta().layout.shards {
        server.query::<()>(&["DEL", &keyspace.epoch_key(shard)]).unwrap();
        let mut looks = Vec::new();
        while looks.len() < 8 && looks.last().is_none_or(Result::is_ok) {
            looks.push(store.health().await);
        }
        let lost = |look: &Result<(), StoreError>| match look {
            Err(StoreError::LostHistory { shards, .. }) => *shards == [shard],
            _ => false,
        };
        assert!(looks.last().is_some_and(lost), "{shard}: {looks:?}");
        server.query::<()>(&["SET", &keyspace.epoch_key(shard), keyspace.epoch()]).unwrap();
        store.health().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_unless_allowed() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]).unwrap();
    let options = own(&server);
    let said = fatal(opened(&options).await);
    assert!(said.contains("allkeys-lru") && said.contains("noeviction") && said.contains("redis.allow_eviction"));
    assert_eq!(server.query::<u64>(&["DBSIZE"]).unwrap(), 0, "refused before anything was written");
    let allowed = RedisOptions { eviction: Eviction::Allow, ..options };
    let warnings = opened(&allowed).await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("allkeys-lru")), "{warnings:?}");
}

/// As with those that AWS wants, which are signed for each connection and end after minutes.
#[tokio::test]
async fn a_password_that_is_made_is_made_anew_for_each_connection() {
    struct Made(ArcSwap<Result<String, String>>);
    impl Passwords for Made {
        fn password(&self) -> Result<String, String> {
            Result::clone(&self.0.load())
        }
    }
    let server = server();
    let made = Arc::new(Made(ArcSwap::from_pointee(Ok("first".to_owned()))));
    only(&server, "first");
    let by = Password::Made(Arc::clone(&made) as Arc<dyn Passwords>);
    let mut store = fresh_store(&as_weir(&server, by)).await;
    admit(&mut store, &one_of("a")).await.1.unwrap();

    only(&server, "second");
    server.query::<i64>(&["CLIENT", "KILL", "USER", "weir"]).unwrap();
    made.0.store(Arc::new(Err("the credentials have ended".to_owned())));
    let said = temporary(admit(&mut store, &one_of("b")).await.1);
    assert!(said.contains("credentials have ended"), "{said}");
    made.0.store(Arc::new(Ok("second".to_owned())));
    admit(&mut store, &one_of("b")).await.1.unwrap();
}

#[tokio::test]
async fn histories_stay_compact_where_tuning_is_allowed_and_else_it_is_said_how() {
    let server = server();
    let options = own(&server);
    let warnings = opened(&options).await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("hash-max-listpack-value 1024")), "{warnings:?}");
    let tuned = RedisOptions { tuning: Tuning::Set, ..options };
    let opened = opened(&tuned).await.unwrap();
    assert_eq!(opened.warnings, Vec::<String>::new());
    // Redis 6.2 has the parameter's older name alone.
    let set: Vec<String> = server.query(&["CONFIG", "GET", "hash-max-*-value"]).unwrap();
    assert_eq!(set[1], LISTPACK_VALUE_BYTES.to_string());

    let mut store = store(&tuned, &opened);
    let requests = (0..50).map(|number| request("somebody", number)).collect();
    let (answers, _) = admit(&mut store, &batch(at(0), &[cap(99, 1000)], requests)).await;
    assert!(answers.iter().all(|answer| matches!(answer.unwrap().verdict, AdmitVerdict::Allowed)));
    let (key, _) = place_of(store.keyspace(), request("somebody", 0).user);
    let encoding: String = server.query(&["OBJECT", "ENCODING", &key]).unwrap();
    // Redis 6.2 calls it by its older name.
    assert!(["listpack", "ziplist"].contains(&&*encoding), "{encoding:?}");
}

/// A user with the rights that a worker needs: the line of docs/security.md.
pub(crate) fn documented_user(server: &RedisServer) -> RedisOptions {
    let docs = include_str!("../../docs/security.md");
    let line = docs.lines().find_map(|line| line.strip_prefix("ACL SETUSER weir on >password ")).unwrap();
    let user = ["ACL", "SETUSER", "weir", "on", ">secret"].into_iter().chain(line.split_whitespace());
    server.query::<()>(&user.collect::<Vec<_>>()).unwrap();
    RedisOptions { prefix: "weir".to_owned(), ..as_weir(server, Password::Given("secret".to_owned())) }
}

#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_all_that_a_worker_does() {
    let server = server();
    let named = RedisOptions { tuning: Tuning::Set, ..documented_user(&server) };
    let opened_ = opened(&named).await.unwrap();
    assert_eq!(opened_.warnings, Vec::<String>::new());
    let mut store = store(&named, &opened_);
    let mut one = request("somebody", 1);
    one.class.channel = Some("push");
    one.class.campaign = Some("autumn");
    let (answers, result) = admit(&mut store, &batch(at(0), &[cap(1, 1000)], vec![one])).await;
    result.unwrap();
    assert!(matches!(answers[0].unwrap().verdict, AdmitVerdict::Allowed));
    store.health().await.unwrap();
    drop(store);

    // Looking at the configuration may be forbidden, as managed services do: it works and says so.
    server.query::<()>(&["ACL", "SETUSER", "weir", "-config", "-info"]).unwrap();
    let warnings = opened(&named).await.unwrap().warnings;
    for setting in ["maxmemory-policy", "hash-max-listpack-value"] {
        let said = format!("{setting} cannot be read");
        assert!(warnings.iter().any(|warning| warning.contains(&said)), "{setting}: {warnings:?}");
    }
    admit(&mut fresh_store(&named).await, &one_of("a")).await.1.unwrap();

    server.query::<()>(&["ACL", "SETUSER", "weir", "-evalsha"]).unwrap();
    let mut store = fresh_store(&named).await;
    let (answers, result) = admit(&mut store, &batch(at(0), &[], vec![request("somebody", 2)])).await;
    assert_eq!(answers, [None]);
    let said = temporary(result);
    assert!(said.contains("NOPERM"), "{said}");

    let wrong = RedisOptions { password: Some(Password::Given("wrong".to_owned())), ..named };
    assert!(fatal(opened(&wrong).await).contains("redis.password"));
}

#[tokio::test]
async fn a_password_that_was_replaced_is_read_for_the_next_connection() {
    let server = server();
    let folder = testkit::folder();
    let file = folder.path().join("password");
    // As a server ends the connection of a token that has expired.
    let drop_connections = || server.query::<i64>(&["CLIENT", "KILL", "USER", "weir"]).unwrap();
    std::fs::write(&file, "first\n").unwrap();
    only(&server, "first");
    let mut store = fresh_store(&as_weir(&server, Password::File(file.clone()))).await;
    admit(&mut store, &one_of("a")).await.1.unwrap();

    only(&server, "second");
    assert!(drop_connections() > 0);
    // The server is a moment ahead of the file: that is no end.
    let said = temporary(admit(&mut store, &one_of("b")).await.1);
    assert!(!said.contains("first"), "{said}");
    for broken in ["", "\n"] {
        std::fs::write(&file, broken).unwrap();
        let said = temporary(admit(&mut store, &one_of("b")).await.1);
        assert!(said.contains("password is empty"), "{said}");
    }
    std::fs::write(&file, "second").unwrap();
    admit(&mut store, &one_of("b")).await.1.unwrap();
}

#[tokio::test]
async fn tls_works_with_the_ca_and_is_refused_without_it_and_files_that_were_replaced_are_read_for_the_next_connection()
{
    let [server, stranger] = [(); 2].map(|()| RedisServer::start_tls::<&str>(&[]).unwrap());
    let folder = testkit::folder();
    let file = folder.path().join("ca.pem");
    let copy = |of: &RedisServer| std::fs::copy(of.ca_file().unwrap(), &file).unwrap();
    copy(&server);
    let options = own(&server);
    assert!(options.tls.is_some(), "{}", server.url());
    assert!(opened(&options).await.is_err(), "a certificate of an unknown CA was accepted");
    let options = RedisOptions { tls: Some(TlsFiles { ca: Some(file.clone()), client: None }), tries: 2, ..options };
    let mut store = fresh_store(&options).await;
    let (answers, result) = admit(&mut store, &one_of("a")).await;
    result.unwrap();
    assert!(matches!(answers[0].unwrap().verdict, AdmitVerdict::Allowed));

    copy(&stranger);
    assert_ne!(server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap().trim(), "0");
    temporary(admit(&mut store, &one_of("b")).await.1);
    copy(&server);
    admit(&mut store, &one_of("b")).await.1.unwrap();
}

#[tokio::test]
async fn nobody_there_is_temporary() {
    ask_nobody().await;
}

#[tokio::test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
async fn nobody_there_takes_no_longer_than_its_bounds() {
    let took = ask_nobody().await;
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

async fn ask_nobody() -> std::time::Duration {
    let mut server = server();
    let options = RedisOptions { tries: 3, ..own(&server) };
    server.kill();
    let started = std::time::Instant::now();
    temporary(opened(&options).await);
    started.elapsed()
}

#[test]
fn urls_that_cannot_be_are_refused() {
    let no: [&[&str]; 4] =
        [&[], &["http://127.0.0.1"], &["redis://a:1", "rediss://b:1"], &["redis://u:p@a:1", "redis://a:2"]];
    for urls in no {
        assert!(RedisOptions::for_urls(urls).is_err(), "{urls:?}");
    }
    let said = RedisOptions::for_urls(&["redis://user:hush@host:notaport"]).unwrap_err().to_string();
    assert!(!said.contains("hush"), "{said}");
    assert!(!format!("{:?}", RedisOptions::for_urls(&["redis://user:hush@host:1"]).unwrap()).contains("hush"));
}
