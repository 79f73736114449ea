//! A rebuild that was frozen, at any of its requests, and wakes after another one has finished changes nothing of it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::redis_support::{DAY_MS, admit, at, batch, cap, opened, own, request, server, store};
use redis::{Pipeline, RedisResult, Value};
use testkit::{redis::RedisServer, unique};
use tokio::sync::Notify;
use weir_core::{
    class::ClassNames,
    decide::AdmitVerdict,
    ports::StoreError,
    refund::Refund,
    shard::{IdHash, OriginMark, UserHash},
};
use weir_redis::{
    Boxed, KeyspaceSeed, Link, Network, NodeAddr, RedisOptions, RedisStats, Tcp,
    rebuild::{RebuildError, Scope, Send, begin},
};

/// How long a run may take, frozen or not.
const DEADLINE: Duration = Duration::from_secs(60);

/// A network on which a run is frozen right before one of its requests, counted from 0.
#[derive(Debug)]
struct Freezer {
    at: usize,
    sent: Arc<AtomicUsize>,
    frozen: Arc<Notify>,
    thawed: Arc<Notify>,
}

struct FrozenLink {
    link: Box<dyn Link>,
    freezer: Arc<Freezer>,
}

#[derive(Debug, Clone)]
struct Frozen(Arc<Freezer>);

impl Network for Frozen {
    fn connect<'a>(&'a self, addr: &'a NodeAddr, options: &'a RedisOptions) -> Boxed<'a, RedisResult<Box<dyn Link>>> {
        Box::pin(async move {
            let link = Tcp.connect(addr, options).await?;
            Ok(Box::new(FrozenLink { link, freezer: Arc::clone(&self.0) }) as Box<dyn Link>)
        })
    }

    fn sleep(&self, wait: Duration) -> Boxed<'static, ()> {
        Tcp.sleep(wait)
    }

    fn passed(&self) -> Duration {
        Tcp.passed()
    }
}

impl Link for FrozenLink {
    fn send<'a>(&'a mut self, pipeline: &'a Pipeline) -> Boxed<'a, RedisResult<Vec<Value>>> {
        Box::pin(async move {
            if self.freezer.sent.fetch_add(1, SeqCst) == self.freezer.at {
                self.freezer.frozen.notify_one();
                self.freezer.thawed.notified().await;
            }
            self.link.send(pipeline).await
        })
    }
}

fn sent(user: &str, number: u32) -> Send<'static> {
    let (user, id) = (UserHash::of(user), IdHash::of(&format!("i-{number}")));
    let class = ClassNames { campaign: Some("spring"), ..ClassNames::default() };
    Send { user, id, origin: OriginMark::RESTORED, at: at(1000), class, cost: 1 }
}

/// All of a rebuild, of one user's two sends and a refund of the second.
async fn rebuild(options: RedisOptions, scope: Scope, run: String) -> Result<(), RebuildError> {
    let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: at(0) };
    let mut rebuild = begin(&Arc::new(options), &Arc::new(RedisStats::default()), &scope, run, keyspace_seed).await?;
    if rebuild.shards().is_empty() {
        rebuild.leave().await;
        return Ok(());
    }
    let done = async {
        let mut restorer = rebuild.restorer();
        // A run that goes on where one stopped reads no send again.
        if rebuild.progress().is_empty() {
            restorer.insert(&[sent("u", 1), sent("u", 2)], at(1000)).await?;
        }
        rebuild.save(&[(0, 2)].into()).await?;
        let user = UserHash::of("u");
        let refund = Refund { user, id: IdHash::of("i-2"), at: Some(at(2000)), partition: 0, offset: 7 };
        restorer.take_back(&"bounces".into(), &[refund], &mut [None]).await?;
        rebuild.save(&BTreeMap::new()).await
    };
    if let Err(error) = done.await {
        rebuild.leave().await;
        return Err(error);
    }
    rebuild.finish().await.map(|_| ())
}

/// All keys of a server with what they hold, but the counters of time.
fn everything(server: &RedisServer) -> BTreeMap<String, String> {
    let keys: Vec<String> = server.query(&["KEYS", "*"]).unwrap();
    let held = |key: String| {
        let kind: String = server.query(&["TYPE", &key]).unwrap();
        let read = if kind == "hash" { "HGETALL" } else { "GET" };
        let value: Value = server.query(&[read, &key]).unwrap();
        (key, format!("{value:?}"))
    };
    keys.into_iter().map(held).collect()
}

/// Freezes a run right before its request `step`, lets another one finish, and wakes it. Gives whether there is such a step.
async fn frozen_at(step: usize, scope: &Scope) -> bool {
    let server = server();
    let options = RedisOptions { shards: 2, users: 48, ..own(&server) };
    let before = opened(&options).await.unwrap();
    let caps = [cap(2, DAY_MS)];
    let decided = |user: &str, number: u32, now: i64| {
        let (user, caps) = (user.to_owned(), caps.clone());
        let (options, opened) = (options.clone(), opened(&options));
        async move {
            let mut store = store(&options, &opened.await.unwrap());
            let (answers, result) = admit(&mut store, &batch(at(now), &caps, vec![request(&user, number)])).await;
            result.unwrap();
            answers[0].unwrap().verdict
        }
    };
    assert_eq!(decided("u", 9, 0).await, AdmitVerdict::Allowed);
    let place = before.keyspace.meta().layout.place(UserHash::of("u"));
    server.query::<()>(&["DEL", &before.keyspace.epoch_key(place.shard)]).unwrap();
    if *scope == Scope::All {
        server.query::<()>(&["DEL", before.keyspace.meta_key()]).unwrap();
    }

    let (frozen, thawed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let freezer = Freezer { at: step, sent: Arc::default(), frozen: Arc::clone(&frozen), thawed: Arc::clone(&thawed) };
    let network = Arc::new(Frozen(Arc::new(freezer)));
    let first_run = unique("first");
    let slow = RedisOptions { network, ..options.clone() };
    let mut first = tokio::spawn(rebuild(slow, scope.clone(), first_run.clone()));
    tokio::select! {
        over = &mut first => {
            over.unwrap().unwrap();
            return false;
        }
        () = frozen.notified() => {}
    }
    let lock = before.keyspace.rebuild_lock_key();
    let holder: Option<String> = server.query(&["GET", &lock]).unwrap();
    // As after the 20 s for which it holds.
    server.query::<()>(&["DEL", &lock]).unwrap();
    tokio::time::timeout(DEADLINE, rebuild(options.clone(), scope.clone(), unique("second"))).await.unwrap().unwrap();
    assert_eq!(decided("u", 3, 3000).await, AdmitVerdict::Allowed, "step {step}: the first of the two that fit");
    let mut expected = everything(&server);
    thawed.notify_one();
    let ended = tokio::time::timeout(DEADLINE, first).await.unwrap().unwrap();
    if holder != Some(first_run) {
        // It had not begun, or was over.
        return true;
    }
    if ended.is_ok() {
        // All was restored before, and the other run had nothing to do: what is left is to forget its own progress.
        expected.remove(&before.keyspace.rebuild_key());
    }
    assert_eq!(everything(&server), expected, "step {step} of {scope:?}: the first run ended with {ended:?}");
    let refused = match &ended {
        // Temporary: frozen while it took the lock, it has not begun.
        Err(
            RebuildError::TakenOver | RebuildError::Store(StoreError::LostHistory { .. } | StoreError::Temporary(_)),
        ) => true,
        Err(RebuildError::Store(StoreError::TooSlow(_) | StoreError::Fatal(_))) | Ok(()) => false,
    };
    assert!(refused || ended.is_ok(), "step {step} of {scope:?}: {ended:?}");
    assert_ne!(decided("u", 4, 4000).await, AdmitVerdict::Allowed, "step {step}: one was restored, one decided since");
    true
}

#[tokio::test]
async fn a_rebuild_that_wakes_after_another_one_finished_changes_nothing() {
    for scope in [Scope::Lost, Scope::All] {
        let mut steps = 0;
        while frozen_at(steps, &scope).await {
            steps += 1;
        }
        assert!(steps > 15, "{steps} requests of a whole run");
    }
}
