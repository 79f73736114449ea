//! A history is made longer only where all of it is there, and what is not all there yet is never taken for it.

use std::{fmt::Debug, sync::Arc, time::Duration};

use crate::{
    redis_support::{
        DAY_MS, admit, at, batch, cap, fatal, opened, options, own, own_keyspace, patiently, request, server, store,
    },
    refunds::{refund, sent},
};
use testkit::{
    redis::{RedisCluster, RedisServer},
    unique,
};
use weir_core::{
    basis::{shard::UserHash, time::Time},
    history::{decide::AdmitVerdict, deferred_send::PastSend, found_names::FoundNames, refund::RefundOutcome},
    ports::Histories as _,
};
use weir_redis::{
    Keyspace, KeyspaceSeed, Opened, RedisOptions, RedisStats,
    rebuild::{Beginning, Rebuild, RebuildError, Scope, begin, begin_lengthening, begin_names, kept_history},
};

const HOUR_MS: i64 = 3_600_000;
/// How long a failover may take, and the locks that it has brought back, or that attempts meanwhile could not give back: 20 s each.
const DEADLINE: Duration = Duration::from_secs(120);

fn stats() -> Arc<RedisStats> {
    Arc::default()
}

fn seed() -> KeyspaceSeed {
    KeyspaceSeed { epoch: unique("epoch"), now: at(0) }
}

/// The options with a history that is four times as long.
fn longer(options: &RedisOptions) -> RedisOptions {
    RedisOptions { history_ms: 4 * options.history_ms, ..options.clone() }
}

async fn lengthening(options: &RedisOptions) -> Result<Rebuild, RebuildError> {
    let (asked, history_ms) = (Arc::new(options.clone()), longer(options).history_ms);
    begin_lengthening(&asked, &stats(), history_ms, unique("run"), seed()).await
}

/// What comes of it in the end; tries again until then.
async fn in_the_end<T, E: Debug>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = None;
    let done = patiently(DEADLINE, async || match attempt().await {
        Ok(done) => Some(done),
        Err(error) => {
            last = Some(error);
            None
        }
    });
    let done = done.await;
    done.unwrap_or_else(|| panic!("not done within {DEADLINE:?}; last: {last:?}"))
}

/// Loses the meta key and the tables beside it.
fn lose_tables(server: &RedisServer, keyspace: &Keyspace) {
    let tables = [
        keyspace.meta_key(),
        keyspace.kinds_key(),
        keyspace.kind_names_key(),
        keyspace.campaigns_key(),
        keyspace.campaign_names_key(),
        keyspace.commits_key(),
        keyspace.rebuild_key(),
    ];
    server.query::<()>(&[&["DEL"], tables.as_slice()].concat()).unwrap();
}

/// Restores them, as `weir rebuild` does.
async fn restore_tables(options: &Arc<RedisOptions>) {
    let (scope, history_ms) = (Scope::Lost, kept_history(options, &stats()).await.unwrap());
    let options = &Arc::new(RedisOptions { history_ms, ..(**options).clone() });
    let mut repair = begin_names(options, &stats(), &scope, unique("run"), seed()).await.unwrap().unwrap();
    repair.pause().await.unwrap();
    repair.finish(&FoundNames::default()).await.unwrap();
    let mut rebuild = begin(options, &stats(), &scope, unique("run"), seed()).await.unwrap();
    assert!(rebuild.shards.is_empty(), "{:?}", rebuild.shards);
    rebuild.restore_commits(&[]).await.unwrap();
    rebuild.leave().await;
}

#[tokio::test]
async fn all_runs_put_back_what_was_trimmed_until_the_shards_had_the_longer_history() {
    let (_server, options, _) = own_keyspace().await;
    // It was frozen for five hours before it came to the shards.
    let mut first = lengthening(&options).await.unwrap();
    assert_eq!(first.beginning, Beginning::Fresh);
    let before = first.lengthens_before(at(5 * HOUR_MS)).await.unwrap();
    assert!(before > at(5 * HOUR_MS - options.history_ms), "{before}");
    first.leave().await;
    let mut second = lengthening(&options).await.unwrap();
    assert_eq!(second.beginning, Beginning::Resumed);
    assert_eq!(second.lengthens_before(at(9 * HOUR_MS)).await.unwrap(), before, "none is put back after its refund");
    second.first.extend([(3, at(0))]);
    second.save(&[(3, 7)].into()).await.unwrap();
    second.leave().await;
    let third = lengthening(&options).await.unwrap();
    assert_eq!((third.progress.get(&3), third.first.get(&3)), (Some(&7), Some(&at(0))));
    third.lengthened().await.unwrap();
    assert!(fatal(lengthening(&options).await).contains("32d long already"));
    // Who looked at the keyspace before it was made longer would read less than it remembers.
    let before = begin(&Arc::new(options), &stats(), &Scope::All, unique("run"), seed()).await;
    assert!(fatal(before).contains("run weir rebuild again"));
}

/// A shard that failed over may have lost what the last run put back, and have the run before as its last one.
#[tokio::test]
async fn a_run_goes_on_only_where_every_shard_knows_the_run_before() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    lengthening(&options).await.unwrap().leave().await;
    let last_run = keyspace.last_run_key(3);
    let of_first: String = server.query(&["GET", &last_run]).unwrap();
    let second = lengthening(&options).await.unwrap();
    assert_eq!(second.beginning, Beginning::Resumed);
    second.leave().await;
    server.query::<()>(&["SET", &last_run, &of_first]).unwrap();
    let third = lengthening(&options).await.unwrap();
    assert_eq!(third.beginning, Beginning::Fresh);
    third.leave().await;
    assert_eq!(lengthening(&options).await.unwrap().beginning, Beginning::Resumed);
}

/// The refund of a send that has left the history since takes no later one of the same id.
#[tokio::test]
async fn refunds_take_back_what_was_put_back_and_nothing_younger() {
    let (_server, options, _) = own_keyspace().await;
    let mut rebuild = lengthening(&options).await.unwrap();
    let before = rebuild.lengthens_before(at(0)).await.unwrap();
    let send = |number: u32, at: Time| PastSend { at, ..sent("u", number, 0) };
    let mut restorer = rebuild.restorer();
    // The second one stands for one that was decided, not put back.
    restorer.insert(&[send(1, before.plus(-1)), send(2, before)], at(0)).await.unwrap();
    let refunds = [refund("u", 1, Some(at(0)), 1), refund("u", 2, Some(at(0)), 2)];
    let mut outcomes = [None; 2];
    restorer.take_back(&"bounces".into(), &refunds, &mut outcomes).await.unwrap();
    assert_eq!(outcomes, [Some(RefundOutcome::TakenBack), Some(RefundOutcome::Early)]);
    let mut without_time = [None];
    restorer.take_back(&"reports".into(), &[refund("u", 2, None, 2)], &mut without_time).await.unwrap();
    assert_eq!(without_time, [Some(RefundOutcome::Early)]);
}

/// The server of the meta key dies before its replica has what the shards go by.
#[tokio::test(flavor = "multi_thread")]
async fn no_shard_has_the_new_epoch_before_a_replica_has_the_meta_key_with_it() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options = options(&cluster.nodes());
    assert_eq!(options.wait_replicas, 0, "it holds whatever is set");
    let keyspace = opened(&options).await.unwrap().keyspace;
    let owner = cluster.owner_of(keyspace.meta_slot()).unwrap();
    let replica = cluster.replicas_of(owner).unwrap()[0];
    let shards = 0..keyspace.meta().layout.shards;
    let owners: Vec<usize> = shards.map(|shard| cluster.owner_of(keyspace.slot(shard)).unwrap()).collect();
    // What it lacks of the keyspace would be lost with the owner.
    tokio::task::block_in_place(|| cluster.wait_replicated(owner)).unwrap();
    cluster.freeze(replica);
    let refused = lengthening(&options).await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
    for (shard, owner) in (0..).zip(owners) {
        let node = cluster.node(owner);
        assert_eq!(node.query::<String>(&["GET", &keyspace.epoch_key(shard)]).unwrap(), keyspace.epoch());
    }
    cluster.kill(owner);
    cluster.thaw(replica);
    tokio::task::block_in_place(|| cluster.wait_primary(replica)).unwrap();

    // Whether it has it or not.
    let again = in_the_end(async || lengthening(&options).await).await;
    again.lengthened().await.unwrap();
    let found = in_the_end(async || opened(&longer(&options)).await).await;
    assert_eq!(found.lost, Vec::<u16>::new());
}

#[tokio::test]
async fn decisions_go_on_and_a_longer_history_is_used_only_when_it_is_whole() {
    let (_server, options, found) = own_keyspace().await;
    // Of a lane that knows the keyspace as it was.
    let mut lane = store(&options, &found);
    let mut verdict = async |number: u32, now: i64| {
        let asked = batch(at(now), &[cap(2, DAY_MS)], vec![request("u", number)]);
        let (answers, result) = admit(&mut lane, &asked).await;
        result.unwrap();
        answers[0].unwrap().verdict
    };
    assert_eq!(verdict(1, 0).await, AdmitVerdict::Allowed);
    let rebuild = lengthening(&options).await.unwrap();
    assert_eq!(verdict(1, 1).await, AdmitVerdict::Replayed);
    assert_eq!(verdict(2, 2).await, AdmitVerdict::Allowed);
    assert!(matches!(verdict(3, 3).await, AdmitVerdict::Denied { .. }));

    let half = opened(&options).await.unwrap();
    assert!(half.warnings.iter().any(|said| said.contains("weir rebuild --history 32d")), "{:?}", half.warnings);
    assert!(fatal(opened(&longer(&options)).await).contains("not all there yet"));
    // Nor is it told that the longer one can be set now.
    let said = fatal(opened(&longer(&longer(&options))).await);
    assert!(said.contains("set redis.history to 8d until then"), "{said}");
    rebuild.lengthened().await.unwrap();
    let whole = opened(&longer(&options)).await.unwrap();
    assert_eq!(whole.lost, Vec::<u16>::new());
    assert!(!whole.warnings.iter().any(|said| said.contains("redis.history")), "{:?}", whole.warnings);
    let history = store(&options, &whole).history_of(UserHash::of("u")).await.unwrap();
    assert_eq!(history.entries.len(), 2);
}

#[tokio::test]
async fn nothing_is_made_longer_while_a_part_of_it_is_lost() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    let meta = || server.query::<Vec<String>>(&["HGETALL", keyspace.meta_key()]).unwrap();
    let was = meta();
    let epoch_key = keyspace.epoch_key(3);
    server.query::<()>(&["DEL", &epoch_key]).unwrap();
    assert!(fatal(lengthening(&options).await).contains("weir rebuild first"));
    server.query::<()>(&["SET", &epoch_key, keyspace.epoch()]).unwrap();
    // A table of commits that is gone would look whole under a new epoch.
    server.query::<()>(&["DEL", keyspace.commits_key()]).unwrap();
    assert!(fatal(lengthening(&options).await).contains("weir rebuild first"));
    assert_eq!(server.query::<u64>(&["EXISTS", keyspace.commits_key()]).unwrap(), 0);
    assert_eq!(meta(), was);
}

#[tokio::test]
async fn a_lost_meta_key_comes_back_with_what_the_shards_know() {
    let server = server();
    let options = Arc::new(own(&server));
    let keyspace = opened(&options).await.unwrap().keyspace;
    lengthening(&options).await.unwrap().leave().await;
    lose_tables(&server, &keyspace);
    assert_eq!(kept_history(&options, &stats()).await.unwrap(), longer(&options).history_ms);
    restore_tables(&options).await;
    // Half way is half way.
    assert!(fatal(opened(&longer(&options)).await).contains("not all there yet"));
    let rebuild = lengthening(&options).await.unwrap();
    assert_eq!(rebuild.beginning, Beginning::Fresh);
    rebuild.lengthened().await.unwrap();
    lose_tables(&server, &keyspace);
    restore_tables(&options).await;
    opened(&longer(&options)).await.unwrap();
}

/// A run that was killed before it came to the shards, and `weir rebuild` after it: they do not know of it by themselves.
#[tokio::test]
async fn a_lost_meta_key_comes_back_half_way_where_a_rebuild_gave_the_shards_their_epoch() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    lengthening(&options).await.unwrap().leave().await;
    for shard in 0..keyspace.meta().layout.shards {
        server.query::<()>(&["SET", &keyspace.epoch_key(shard), keyspace.epoch()]).unwrap();
        server.query::<()>(&["DEL", &keyspace.last_run_key(shard)]).unwrap();
    }
    let kept = Arc::new(longer(&options));
    let repair = begin_names(&kept, &stats(), &Scope::Lost, unique("run"), seed()).await.unwrap();
    assert!(repair.is_none(), "no name is lost");
    assert_eq!(opened(&options).await.unwrap().lost, Vec::<u16>::new());
    lose_tables(&server, &keyspace);
    restore_tables(&Arc::new(options.clone())).await;
    assert!(fatal(opened(&longer(&options)).await).contains("not all there yet"));
    assert_eq!(lengthening(&options).await.unwrap().beginning, Beginning::Fresh);
}

#[tokio::test]
async fn the_end_deletes_the_marks_of_all_runs() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    let (marks, of_worker) = (keyspace.marks_key(5), "bounces:AAAAAAAAAAAAAAAAAAAAAA:0");
    let of_earlier = "bounces lengthening run-0:AAAAAAAAAAAAAAAAAAAAAA:0";
    server.query::<()>(&["HSET", &marks, of_worker, "7", of_earlier, "7"]).unwrap();
    lengthening(&options).await.unwrap().lengthened().await.unwrap();
    assert_eq!(server.query::<Vec<String>>(&["HKEYS", &marks]).unwrap(), [of_worker]);
}
