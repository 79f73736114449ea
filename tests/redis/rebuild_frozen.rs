//! A rebuild that was frozen, at any of its requests, and wakes after another one has finished changes nothing of it. One that makes the
//! history longer may be killed at any of them: the next one finishes it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::{
    redis_support::{
        DAY_MS, admit, at, batch, cap, of_another_shard, opened, own, place_of, request, server, shard_of, store,
    },
    refunds::{refund, sent},
};
use redis::{Pipeline, RedisResult, Value};
use testkit::{redis::RedisServer, unique};
use tokio::{sync::Notify, task::JoinHandle};
use weir_core::{
    basis::shard::UserHash,
    history::{decide::AdmitVerdict, deferred_send::PastSend},
    intent::class::ClassNames,
    ports::StoreError,
};
use weir_redis::{
    Boxed, Keyspace, KeyspaceSeed, Link, Network, NodeAddr, RedisOptions, RedisStats, Tcp,
    rebuild::{RebuildError, Scope, begin, begin_lengthening},
};

/// How long a run may take, frozen or not.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Work {
    Restore(Scope),
    Lengthen,
}

/// A network on which a run is frozen right before one of its requests, counted from 0.
#[derive(Debug, Default)]
struct Freezer {
    at: usize,
    sent: AtomicUsize,
    frozen: Notify,
    thawed: Notify,
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

fn of_spring(number: u32) -> PastSend<'static> {
    let class = ClassNames { campaign: Some("spring"), ..ClassNames::default() };
    PastSend { class, ..sent("u", number, 1000) }
}

/// All of a run, of one user's two sends and a refund of the second.
async fn rebuild(options: RedisOptions, work: Work, run: String) -> Result<(), RebuildError> {
    let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: at(0) };
    let (options, stats) = (Arc::new(options), Arc::new(RedisStats::default()));
    let mut rebuild = match &work {
        Work::Restore(scope) => begin(&options, &stats, scope, run, keyspace_seed).await?,
        Work::Lengthen => begin_lengthening(&options, &stats, 4 * options.history_ms, run, keyspace_seed).await?,
    };
    if rebuild.shards.is_empty() {
        rebuild.leave().await;
        return Ok(());
    }
    let done = async {
        if work == Work::Lengthen {
            // The sends below are older than that.
            rebuild.lengthens_before(at(options.history_ms)).await?;
        }
        let mut restorer = rebuild.restorer();
        // A run that goes on where one stopped reads no send again.
        if rebuild.progress.is_empty() {
            restorer.insert(&[of_spring(1), of_spring(2)], at(1000)).await?;
        }
        rebuild.save(&[(0, 2)].into()).await?;
        restorer.take_back(&"bounces".into(), &[refund("u", 2, Some(at(2000)), 7)], &mut [None]).await?;
        rebuild.save(&BTreeMap::new()).await
    };
    if let Err(error) = done.await {
        rebuild.leave().await;
        return Err(error);
    }
    match work {
        Work::Restore(_) => rebuild.finish().await.map(|_| ()),
        Work::Lengthen => rebuild.lengthened().await,
    }
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

/// Whether the history is as long as that already.
fn is_over(ended: &Result<(), RebuildError>) -> bool {
    matches!(ended, Err(RebuildError::Store(StoreError::Fatal(message))) if message.contains("long already"))
}

/// Loses the history of the user's shard, and the keyspace where all is to be restored.
fn lose(server: &RedisServer, keyspace: &Keyspace, scope: &Scope) {
    server.query::<()>(&["DEL", &keyspace.epoch_key(shard_of(keyspace, "u"))]).unwrap();
    if *scope == Scope::All {
        server.query::<()>(&["DEL", keyspace.meta_key()]).unwrap();
    }
}

/// The verdict on one send, under a cap of a day.
async fn decided(options: &RedisOptions, limit: u32, (user, number): (&str, u32), now: i64) -> AdmitVerdict {
    let mut store = store(options, &opened(options).await.unwrap());
    let asked = batch(at(now), &[cap(limit, DAY_MS)], vec![request(user, number)]);
    let (answers, result) = admit(&mut store, &asked).await;
    result.unwrap();
    answers[0].unwrap().verdict
}

/// A run that is frozen right before its request `step`; `None` where it ends before.
async fn frozen_run(
    step: usize,
    options: &RedisOptions,
    work: &Work,
    run: &str,
) -> Option<(JoinHandle<Result<(), RebuildError>>, Arc<Freezer>)> {
    let freezer = Arc::new(Freezer { at: step, ..Freezer::default() });
    let slow = RedisOptions { network: Arc::new(Frozen(Arc::clone(&freezer))), ..options.clone() };
    let mut first = tokio::spawn(rebuild(slow, work.clone(), run.to_owned()));
    let is_over = tokio::select! {
        over = &mut first => {
            over.unwrap().unwrap();
            true
        }
        () = freezer.frozen.notified() => false,
    };
    (!is_over).then_some((first, freezer))
}

/// Freezes a run right before its request `step`, lets another one finish, and wakes it. Gives whether there is such a step.
async fn frozen_at(step: usize, work: &Work) -> bool {
    let server = server();
    let options = RedisOptions { shards: 2, users: 48, ..own(&server) };
    let before = opened(&options).await.unwrap();
    // A lost history begins empty, and is restored with one send.
    let limit = if *work == Work::Lengthen { 3 } else { 2 };
    let decided = |number, now| decided(&options, limit, ("u", number), now);
    assert_eq!(decided(9, 0).await, AdmitVerdict::Allowed);
    if let Work::Restore(scope) = work {
        lose(&server, &before.keyspace, scope);
    }

    let first_run = unique("first");
    let Some((first, freezer)) = frozen_run(step, &options, work, &first_run).await else { return false };
    let lock = before.keyspace.rebuild_lock_key();
    let holder: Option<String> = server.query(&["GET", lock]).unwrap();
    // As after the 20 s for which it holds.
    server.query::<()>(&["DEL", lock]).unwrap();
    let second = rebuild(options.clone(), work.clone(), unique("second"));
    let second = tokio::time::timeout(DEADLINE, second).await.unwrap();
    // The first run had noted that the history is as long as that.
    let was_over = is_over(&second);
    assert!(second.is_ok() || (*work == Work::Lengthen && was_over), "step {step} of {work:?}: {second:?}");
    assert_eq!(decided(3, 3000).await, AdmitVerdict::Allowed, "step {step}: the last one that fits");
    let mut expected = everything(&server);
    freezer.thawed.notify_one();
    let ended = tokio::time::timeout(DEADLINE, first).await.unwrap().unwrap();
    if holder != Some(first_run) {
        // It had not begun, or was over.
        return true;
    }
    if was_over {
        ended.unwrap();
        assert_ne!(decided(4, 4000).await, AdmitVerdict::Allowed, "step {step}: one was restored, one decided since");
        return true;
    }
    if ended.is_ok() {
        // All was restored before, and the other run had nothing to do: what is left is to forget its own progress.
        expected.remove(before.keyspace.rebuild_key());
    }
    assert_eq!(everything(&server), expected, "step {step} of {work:?}: the first run ended with {ended:?}");
    let refused = match &ended {
        // Temporary: frozen while it took the lock, it has not begun.
        Err(
            RebuildError::TakenOver | RebuildError::Store(StoreError::LostHistory { .. } | StoreError::Temporary(_)),
        ) => true,
        // Frozen while it looked at the keyspace, which the other run has changed since.
        Err(RebuildError::Store(StoreError::Fatal(_))) => *work == Work::Lengthen,
        Err(RebuildError::Store(StoreError::NotRecorded(_) | StoreError::TooSlow(_))) | Ok(()) => false,
    };
    assert!(refused || ended.is_ok(), "step {step} of {work:?}: {ended:?}");
    assert_ne!(decided(4, 4000).await, AdmitVerdict::Allowed, "step {step}: one was restored, one decided since");
    true
}

#[tokio::test]
async fn a_rebuild_that_wakes_after_another_one_finished_changes_nothing() {
    for work in [Work::Restore(Scope::Lost), Work::Restore(Scope::All), Work::Lengthen] {
        let mut steps = 0;
        while frozen_at(steps, &work).await {
            steps += 1;
        }
        assert!(steps > 15, "{steps} requests of a whole run");
    }
}

/// Kills a run that makes the history longer right before its request `step`; the next one finishes it. Gives whether there is such a
/// step.
async fn killed_at(step: usize) -> bool {
    let server = server();
    let options = RedisOptions { shards: 2, users: 48, ..own(&server) };
    let keyspace = opened(&options).await.unwrap().keyspace;
    // Nothing is put back into the other shard.
    let idle = of_another_shard(&keyspace, "u");
    for user in ["u", &idle] {
        assert_eq!(decided(&options, 3, (user, 9), 0).await, AdmitVerdict::Allowed);
    }

    let Some((first, _)) = frozen_run(step, &options, &Work::Lengthen, &unique("first")).await else { return false };
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // As after the 20 s for which it holds.
    server.query::<()>(&["DEL", keyspace.rebuild_lock_key()]).unwrap();
    let second = rebuild(options.clone(), Work::Lengthen, unique("second"));
    let second = tokio::time::timeout(DEADLINE, second).await.unwrap();
    assert!(second.is_ok() || is_over(&second), "step {step}: {second:?}");

    let longer = RedisOptions { history_ms: 4 * options.history_ms, ..options };
    let found = opened(&longer).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
    assert_eq!(found.lost, Vec::<u16>::new(), "step {step}");
    assert_eq!(decided(&longer, 3, ("u", 3), 3000).await, AdmitVerdict::Allowed, "step {step}: the last one that fits");
    assert_ne!(decided(&longer, 3, ("u", 4), 4000).await, AdmitVerdict::Allowed, "step {step}: one was put back");
    for user in ["u", &idle] {
        let left: i64 = server.query(&["PTTL", &place_of(&keyspace, UserHash::of(user)).0]).unwrap();
        assert!(left > 2 * longer.history_ms, "step {step}: the key of {user} expires in {left} ms");
    }
    true
}

#[tokio::test]
async fn a_history_that_is_made_longer_is_whole_whenever_the_first_run_was_killed() {
    let mut steps = 0;
    while killed_at(steps).await {
        steps += 1;
    }
    assert!(steps > 15, "{steps} requests of a whole run");
}
