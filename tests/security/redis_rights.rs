//! Each word of the page's ACL line for Redis is needed, and its absence is reported by name.

use std::sync::Arc;

use testkit::redis::RedisServer;
use weir_core::{
    history::admit::AdmitRequest,
    intent::class::ClassNames,
    limit::{
        pressure::{
            activity::{ActivityHash, Minute},
            activity_log::{ActiveIn, SyncRequest},
        },
        share::TurnNumber,
    },
    ports::{Share, Store, StoreError},
};
use weir_oracle::service::{Registration, ServiceName, Services, ShareTurn};
use weir_redis::{NodeClocks, Password, RedisActivityLog, RedisOptions, RedisServices, Tuning};
use weir_worker::clock::SystemClock;

use crate::{
    page,
    redis_support::{DAY_MS, at, batch, cap, opened, options, request, store},
};

/// Commands used only while slots move, and those of refunds.
const ELSEWHERE: [&str; 2] = ["+asking", "+hdel"];

/// Commands that scripts alone use.
const IN_SCRIPTS: [&str; 7] = ["+hget", "+hset", "+hsetnx", "+hlen", "+hmget", "+exists", "+pexpire"];

/// Uses every command of a worker; returns warnings and errors.
async fn everything(options: &RedisOptions) -> String {
    let opened = match opened(options).await {
        Ok(opened) => opened,
        Err(error) => return error.to_string(),
    };
    let mut said = opened.warnings.join("; ");
    let mut store = store(options, &opened);
    let batch = batch(at(0), &[cap(1, DAY_MS)], vec![of_a_class(1), of_a_class(2)]);
    let mut answers = vec![None; 2];
    let mut note = |result: Result<(), StoreError>| {
        if let Err(error) = result {
            said.push_str(&format!("; {error}"));
        }
    };
    note(store.admit(&batch, &mut answers).await);
    note(store.health().await);
    let asked = NodeClocks::new(&Arc::new(options.clone()), &Arc::default()).ask(&SystemClock).await;
    note(asked.map(|_| ()));
    said
}

/// Gives the options a user of their own who has a worker's line and these blocks, but for a word.
fn restrict(server: &RedisServer, options: &mut RedisOptions, blocks: &[&str], left_out: Option<&str>) {
    let prefix = options.prefix.clone();
    let rights = page::redis_rights("redis", &prefix, "secret");
    let more =
        blocks.iter().flat_map(|block| page::block(block).trim().strip_prefix("ACL SETUSER weir ").unwrap().split(' '));
    let mut command = vec!["acl", "setuser", prefix.as_str()];
    command.extend(rights.iter().map(String::as_str).chain(more).filter(|word| Some(*word) != left_out));
    assert_eq!(server.cli(&command).unwrap().trim(), "OK", "{command:?}");
    (options.username, options.password) = (Some(prefix), Some(Password::Given("secret".to_owned())));
    options.tries = 1;
}

/// A send with a class, which gets numbers in Redis.
fn of_a_class(number: u32) -> AdmitRequest<'static> {
    let class = ClassNames { channel: Some("push"), category: Some("promo"), campaign: Some("spring") };
    AdmitRequest { class, ..request("somebody", number) }
}

#[tokio::test]
async fn each_word_of_the_acl_line_is_needed_and_named_where_it_is_missing() {
    let server = RedisServer::start::<&str>(&["--replica-serve-stale-data", "yes"]).unwrap();
    let words = page::redis_rights("redis", "unused", "secret");
    let commands: Vec<&String> = words.iter().filter(|word| word.starts_with('+')).collect();
    assert!(commands.len() > 10, "{words:?}");
    let mut unneeded = Vec::new();
    for left_out in commands.iter().map(|word| Some(word.as_str())).chain([None]) {
        let mut options = options(&[server.url()]);
        restrict(&server, &mut options, &[], left_out);
        server.cli(&["config", "set", "hash-max-listpack-value", "64"]).unwrap();
        options.tuning = Tuning::Set;
        options.wait_replicas = u32::from(left_out == Some("+wait"));
        let said = everything(&options).await;
        match left_out {
            None => assert_eq!(said, "", "with all of them there is nothing to say"),
            Some(word) if ELSEWHERE.contains(&word) => assert_eq!(said, ""),
            Some(word) => {
                // As Redis names it: 'config|set'. Of a script's commands Redis 7.0 gives the line only.
                let named = said.to_lowercase().contains(&format!("'{}'", &word[1..]))
                    || IN_SCRIPTS.contains(&word) && said.contains("docs/security.md");
                if !named {
                    unneeded.push(format!("{word}: {said:?}"));
                }
            }
        }
    }
    assert!(unneeded.is_empty(), "not needed, or not named:\n{}", unneeded.join("\n"));
}

/// The words of the lines that a policy with pressure needs.
const PRESSURE: [&str; 7] = ["+xadd", "+xrange", "+hgetall", "+hset", "+hdel", "+pexpire", "+time"];

#[tokio::test]
async fn each_word_that_pressure_needs_is_on_the_page_and_named_where_it_is_missing() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    for left_out in PRESSURE.into_iter().map(Some).chain([None]) {
        let mut options = options(&[server.url()]);
        let opened = opened(&options).await.unwrap();
        let mut log = RedisActivityLog::new(&Arc::new(options.clone()), &Arc::default(), &opened, "gone");
        let active = vec![ActiveIn { minute: Minute(1), new: 1, users: vec![ActivityHash(1)] }];
        let (cursor, window_ms, member_for_ms, first) = (None, 60_000, 1, TurnNumber { run: 1, number: 1 });
        let mut request = SyncRequest { cursor, active, window_ms, member_for_ms, held: 0, wanted: 0, room: None };
        log.turn(&(), first, &request).await.unwrap();
        restrict(&server, &mut options, &["redis pressure"], left_out);
        let mut log = RedisActivityLog::new(&Arc::new(options), &Arc::default(), &opened, "weir-0");
        // The member before has gone, and leaves.
        request.member_for_ms = 10_000;
        let turn = log.turn(&(), first, &request).await;
        match left_out {
            None => assert!(turn.is_ok(), "{turn:?}"),
            Some(_) => assert!(
                matches!(&turn, Err(StoreError::Fatal(why)) if why.contains("docs/security.md")),
                "{left_out:?}: {turn:?}"
            ),
        }
    }
}

/// The words of the lines that services that ask need.
const SERVICES: [&str; 7] = ["+hgetall", "+hget", "+hset", "+hdel", "+pttl", "+pexpire", "+time"];

#[tokio::test]
async fn each_word_that_services_need_is_on_the_page_and_named_where_it_is_missing() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    let (service, instance) = (ServiceName::new("email").unwrap(), ServiceName::new("e-0").unwrap());
    let registration =
        Registration { capacity_per_s: 1, concurrency: 1, timeout_ms: 1, network_ms: 50, interval_ms: 1 };
    for left_out in SERVICES.into_iter().map(Some).chain([None]) {
        let mut options = options(&[server.url()]);
        let opened = opened(&options).await.unwrap();
        restrict(&server, &mut options, &["redis services"], left_out);
        let mut services = RedisServices::new(&Arc::new(options), &Arc::default(), &opened, "holder");
        let mut said = String::new();
        let mut note = |outcome: Result<(), StoreError>| match outcome {
            Err(StoreError::Fatal(why)) => said.push_str(&why),
            other => other.unwrap(),
        };
        note(services.register(&service, &instance, Some(&registration)).await.map(drop));
        let first = TurnNumber { run: 1, number: 1 };
        note(services.turn(&service, first, &ShareTurn::default()).await.map(drop));
        note(services.register(&service, &instance, None).await.map(drop));
        assert_eq!(said.is_empty(), left_out.is_none(), "{left_out:?}: {said}");
        assert!(left_out.is_none() || said.contains("docs/security.md"), "{left_out:?}: {said}");
    }
}

#[tokio::test]
async fn keys_of_another_prefix_are_out_of_reach() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    let mut options = options(&[server.url()]);
    let prefix = std::mem::replace(&mut options.prefix, "elsewhere".to_owned());
    restrict(&server, &mut options, &[], None);
    options.prefix = prefix;
    let said = everything(&options).await;
    assert!(said.contains("keys") && said.contains("redis.prefix"), "{said}");
}
