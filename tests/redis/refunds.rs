//! A refund takes one send back, once, whatever is read again; and what was sent can be put back, however often.

use std::sync::Arc;

use crate::keyspace::documented_user;
use crate::redis_support::{
    DAY_MS, admit, at, batch, cap, of_another_shard, opened, options, own_keyspace, request, server, shard_of, store,
};
use testkit::{stack::Stack, unique};
use weir_core::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    history::{
        decide::AdmitVerdict,
        deferred_send::PastSend,
        refund::{
            Refund,
            RefundOutcome::{self, Early, Repeated, TakenBack, Unknown, Waits},
        },
    },
    intent::class::ClassNames,
    ports::{StoreError, TakeBack},
};
use weir_redis::{
    KeyspaceSeed, Opened, RedisOptions, RedisRefunds, RedisStats,
    rebuild::{Beginning, Rebuild, RebuildError, Scope, begin},
};

const CAP_MS: i64 = DAY_MS;

pub(crate) fn refund(user: &str, number: u32, at: Option<Time>, offset: i64) -> Refund {
    Refund { user: UserHash::of(user), id: IdHash::of(&format!("i-{number}")), at, partition: 0, offset }
}

fn refunds(options: &RedisOptions, opened: &Opened) -> RedisRefunds {
    RedisRefunds::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened)
}

async fn take(refunds: &mut RedisRefunds, what: &[Refund]) -> Vec<RefundOutcome> {
    let mut outcomes = vec![None; what.len()];
    refunds.take_back(&"bounces".into(), what, &mut outcomes).await.unwrap();
    outcomes.into_iter().map(Option::unwrap).collect()
}

async fn verdict(options: &RedisOptions, opened: &Opened, user: &str, number: u32, now: i64) -> AdmitVerdict {
    let (answers, result) =
        admit(&mut store(options, opened), &batch(at(now), &[cap(1, CAP_MS)], vec![request(user, number)])).await;
    result.unwrap();
    answers[0].unwrap().verdict
}

/// A rebuild run that has begun.
pub(crate) async fn begun(options: &RedisOptions, scope: &Scope) -> Result<Rebuild, RebuildError> {
    let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: at(0) };
    begin(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), scope, unique("run"), keyspace_seed).await
}

/// A send as a rebuild finds it.
pub(crate) fn sent(user: &str, number: u32, millis: i64) -> PastSend<'static> {
    let (user, id) = (UserHash::of(user), IdHash::of(&format!("i-{number}")));
    PastSend { user, id, origin: OriginMark::RESTORED, at: at(millis), class: ClassNames::default(), cost: 1 }
}

#[tokio::test]
async fn a_refund_takes_one_send_back_and_never_a_later_one() {
    for urls in [vec![Stack::shared().redis().to_owned()], Stack::shared().redis_cluster().to_vec()] {
        let options = options(&urls);
        let opened = opened(&options).await.unwrap();
        let mut refunds = refunds(&options, &opened);
        assert_eq!(verdict(&options, &opened, "u", 1, 1000).await, AdmitVerdict::Allowed);
        assert!(matches!(verdict(&options, &opened, "u", 2, 1001).await, AdmitVerdict::Denied { .. }));

        let early = refund("u", 1, Some(at(999)), 3);
        let first = refund("u", 1, Some(at(1500)), 5);
        let strangers = [refund("u", 9, Some(at(1500)), 6), refund("nobody", 1, None, 7)];
        let all = [early, first, strangers[0], strangers[1]];
        assert_eq!(take(&mut refunds, &all).await, [Early, TakenBack, Unknown, Unknown]);
        // It no longer counts, and its id may be sent again.
        assert_eq!(verdict(&options, &opened, "u", 1, 2000).await, AdmitVerdict::Allowed);
        // A refund read again has no effect; neither has a late copy of it, which is older than the send.
        assert_eq!(take(&mut refunds, &all).await, [Repeated; 4]);
        assert_eq!(take(&mut refunds, &[refund("u", 1, Some(at(1500)), 8)]).await, [Early]);
        assert!(matches!(verdict(&options, &opened, "u", 2, 2001).await, AdmitVerdict::Denied { .. }));
        // Another partition has offsets of its own; without a time a refund takes any.
        let other = Refund { partition: 1, ..refund("u", 1, None, 0) };
        assert_eq!(take(&mut refunds, &[other]).await, [TakenBack]);
        assert_eq!(verdict(&options, &opened, "u", 2, 2002).await, AdmitVerdict::Allowed);
    }
}

#[tokio::test]
async fn many_refunds_of_one_batch_are_taken_in_their_order() {
    let options = options(&[Stack::shared().redis()]);
    let opened = opened(&options).await.unwrap();
    let users: Vec<String> = (0..700).map(|user| format!("u{user}")).collect();
    let requests = users.iter().map(|user| request(user, 1)).collect();
    let (answers, _) = admit(&mut store(&options, &opened), &batch(at(0), &[cap(1, CAP_MS)], requests)).await;
    assert!(answers.iter().all(|answer| answer.unwrap().verdict == AdmitVerdict::Allowed));
    // Each twice: the first takes it back.
    let twice = users
        .iter()
        .zip((0..).step_by(2))
        .flat_map(|(user, offset)| [refund(user, 1, Some(at(1)), offset), refund(user, 1, Some(at(1)), offset + 1)]);
    let outcomes = take(&mut refunds(&options, &opened), &twice.collect::<Vec<_>>()).await;
    assert!(outcomes.chunks(2).all(|pair| pair == [TakenBack, Unknown]), "{outcomes:?}");
}

#[tokio::test]
async fn behind_a_refund_that_waits_all_of_its_shard_wait_until_they_are_taken_again() {
    let (server, options, opened) = own_keyspace().await;
    let shard = |user: &str| shard_of(&opened.keyspace, user);
    let beside = (0..).map(|user| format!("v{user}")).find(|user| shard(user) == shard("u")).unwrap();
    let elsewhere = of_another_shard(&opened.keyspace, "u");
    for user in ["u", &beside, &elsewhere] {
        assert_eq!(verdict(&options, &opened, user, 1, 0).await, AdmitVerdict::Allowed);
    }
    let all = [refund("u", 1, None, 0), refund(&elsewhere, 1, None, 1), refund(&beside, 1, None, 2)];
    let epoch_key = opened.keyspace.epoch_key(shard("u"));
    server.query::<()>(&["DEL", &epoch_key]).unwrap();
    let mut refunds = refunds(&options, &opened);
    assert_eq!(take(&mut refunds, &all[..1]).await, [Waits]);
    assert_eq!(take(&mut refunds, &all[1..2]).await, [TakenBack]);
    assert!(!refunds.any_back().await);
    server.query::<()>(&["SET", &epoch_key, opened.keyspace.epoch()]).unwrap();
    assert_eq!(take(&mut refunds, &all[2..]).await, [Waits], "taken now, it would stand for the first one, too");
    assert!(refunds.any_back().await, "another shard's refund came since");
    assert_eq!(take(&mut refunds, &all).await, [TakenBack, Repeated, TakenBack]);
}

#[tokio::test]
async fn what_is_put_back_twice_is_there_once_in_order_and_never_a_replay() {
    let options = options(&[Stack::shared().redis()]);
    let opened = opened(&options).await.unwrap();
    assert_eq!(verdict(&options, &opened, "u", 5, 5000).await, AdmitVerdict::Allowed);
    let rebuild = begun(&options, &Scope::All).await.unwrap();
    assert_eq!(rebuild.beginning, Beginning::Fresh);
    let (asked, result) = admit(&mut store(&options, &opened), &batch(at(1), &[], vec![request("u", 1)])).await;
    assert_eq!(asked, [None], "nothing is decided on a shard that is being restored");
    assert!(matches!(result, Err(StoreError::LostHistory { .. })));

    let mut restorer = rebuild.restorer();
    let old = at(0).plus(-options.history_ms);
    let sends = [
        sent("u", 7, 7000),
        sent("u", 3, 3000),
        sent("u", 5, 5000),
        sent("u", 6, 5000),
        PastSend { at: old, ..sent("u", 1, 0) },
    ];
    assert_eq!(restorer.insert(&sends, at(0)).await.unwrap(), 3, "one was there, and one is too old");
    assert_eq!(restorer.insert(&sends, at(0)).await.unwrap(), 0);
    // An attempt that was not committed recorded it at another time.
    let again = OriginMark::of(&"send-intents".into(), 0, 5);
    let [first, second] = [5100, 5200].map(|millis| PastSend { origin: again, ..sent("v", 4, millis) });
    assert_eq!(restorer.insert(&[first], at(0)).await.unwrap(), 1);
    assert_eq!(restorer.insert(&[second], at(0)).await.unwrap(), 1);
    assert_eq!(restorer.insert(&[second], at(0)).await.unwrap(), 0);
    // What somebody else has decided later stays, whoever comes back with what he had decided before.
    assert_eq!(restorer.insert(&[first], at(0)).await.unwrap(), 0);
    let mut outcomes = [None];
    restorer.take_back(&"bounces".into(), &[refund("u", 6, Some(at(6000)), 0)], &mut outcomes).await.unwrap();
    assert_eq!(outcomes, [Some(TakenBack)]);
    assert_eq!(rebuild.finish().await.unwrap(), Vec::<u16>::new());

    // The send that was there has its origin still; one that was put back is a duplicate whatever its origin.
    assert_eq!(verdict(&options, &opened, "u", 5, 8000).await, AdmitVerdict::Replayed);
    assert_eq!(verdict(&options, &opened, "u", 3, 8000).await, AdmitVerdict::Duplicate);
    let caps = [cap(3, CAP_MS)];
    let (answers, _) = admit(&mut store(&options, &opened), &batch(at(8000), &caps, vec![request("u", 8)])).await;
    let expected = AdmitVerdict::Denied { cap: 0, used: 3, blocking: Some(at(3000)) };
    assert_eq!(answers[0].unwrap().verdict, expected, "3, 5 and 7 are there, the oldest first; 6 was taken back");
    let (answers, _) =
        admit(&mut store(&options, &opened), &batch(at(8000), &[cap(1, CAP_MS)], vec![request("v", 8)])).await;
    let expected = AdmitVerdict::Denied { cap: 0, used: 1, blocking: Some(at(5200)) };
    assert_eq!(answers[0].unwrap().verdict, expected, "once, at the later time");
    // The refund was taken by the rebuild: the reader of refunds passes over it.
    assert_eq!(take(&mut refunds(&options, &opened), &[refund("u", 6, Some(at(6000)), 0)]).await, [Repeated]);
    assert!(matches!(restorer.insert(&sends, at(0)).await, Err(StoreError::LostHistory { .. })), "the run is over");
}

#[tokio::test]
async fn the_documented_rights_are_enough_for_refunds_and_one_more_for_a_rebuild() {
    let server = server();
    let named = documented_user(&server);
    let opened = opened(&named).await.unwrap();
    assert_eq!(verdict(&named, &opened, "u", 1, 0).await, AdmitVerdict::Allowed);
    assert_eq!(take(&mut refunds(&named, &opened), &[refund("u", 1, None, 0)]).await, [TakenBack]);

    assert!(begun(&named, &Scope::All).await.is_err(), "del is not among them");
    assert!(include_str!("../../docs/security.md").contains("ACL SETUSER weir +del"));
    server.query::<()>(&["ACL", "SETUSER", "weir", "+del"]).unwrap();
    server.query::<()>(&["DEL", "weir:{weir}:rebuilding"]).unwrap();
    let mut rebuild = begun(&named, &Scope::All).await.unwrap();
    assert_eq!(rebuild.restorer().insert(&[sent("u", 1, 0)], at(0)).await.unwrap(), 1);
    rebuild.save(&[(0, 1)].into()).await.unwrap();
    assert_eq!(rebuild.finish().await.unwrap(), Vec::<u16>::new());
}

#[tokio::test]
async fn a_run_goes_on_where_one_stopped_unless_a_shard_was_lost_again() {
    let (server, options, Opened { keyspace, .. }) = own_keyspace().await;
    for shard in [2, 3] {
        server.query::<()>(&["DEL", &keyspace.epoch_key(shard)]).unwrap();
    }
    let mut first = begun(&options, &Scope::Lost).await.unwrap();
    assert_eq!(first.shards, [2, 3].into());
    first.save(&[(0, 17), (1, 4)].into()).await.unwrap();
    let other = begun(&options, &Scope::Lost).await.map(drop);
    assert!(matches!(other, Err(RebuildError::Store(StoreError::Temporary(_)))), "one at a time: {other:?}");
    let mut stale = first.restorer();
    first.leave().await;

    let second = begun(&options, &Scope::Lost).await.unwrap();
    assert_eq!((second.beginning, &second.progress), (Beginning::Resumed, &[(0, 17), (1, 4)].into()));
    let user = (0..).map(|user| format!("u{user}")).find(|user| shard_of(&keyspace, user) == 2);
    let late = stale.insert(&[sent(&user.unwrap(), 1, 0)], at(0)).await;
    assert!(matches!(late, Err(StoreError::LostHistory { .. })), "what the first one still sends is refused");
    second.leave().await;

    server.query::<()>(&["DEL", &keyspace.epoch_key(3)]).unwrap();
    let third = begun(&options, &Scope::Lost).await.unwrap();
    assert_eq!((third.beginning, third.progress.len()), (Beginning::Fresh, 0));
    assert_eq!(third.finish().await.unwrap(), Vec::<u16>::new());
    assert_eq!(opened(&options).await.unwrap().lost, Vec::<u16>::new());
    assert!(begun(&options, &Scope::Lost).await.unwrap().shards.is_empty());
}
