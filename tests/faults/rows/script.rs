//! Errors, lost and late replies of Redis, keyspaces that weir refuses, and a silence longer than intents live. Rows 16, 17, 19 and 27.

use std::thread::JoinHandle;

use anyhow::anyhow;
use testkit::redis::connect;

use super::*;
use crate::support::outcome::intent;

/// How long a command may take that is to take long.
const LONG: Duration = Duration::from_secs(60);
const LASTS: Duration = Duration::from_secs(3);
/// A reply that takes longer is given up.
const TIMEOUT: (&str, &str) = ("WEIR__REDIS__TIMEOUT", "300ms");

pub fn flushed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "script-flush")?.at_work("flushed", &[])?;
    trial.decided(500)?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        for node in cluster.primaries()? {
            cluster.node(node).query::<()>(&["SCRIPT", "FLUSH"])?;
        }
        trial.comes_back()?;
    }
    met(&mut trial, worker, "no_script")?;
    trial.finish(order.times)
}

fn met(trial: &mut Trial, worker: usize, reason: &str) -> Result<()> {
    let label = format!("reason=\"{reason}\"");
    let met = metric(trial.worker(worker), "weir_redis_retries_total", &label).unwrap_or(0.0);
    ensure!(met > 0.0, "the worker has not met {reason}: nothing was tried");
    Ok(())
}

/// A server state that can be entered and left.
pub struct State {
    /// How weir's metric names it.
    reason: &'static str,
    begin: fn(&RedisServer) -> Result<Option<JoinHandle<()>>>,
    end: fn(&RedisServer) -> Result<()>,
}

/// Sends commands, one after the other.
fn all(server: &RedisServer, commands: &[&[&str]]) -> Result<()> {
    commands.iter().try_for_each(|command| server.query::<()>(command))
}

/// Sends a command that takes long, from a thread.
fn long(server: &RedisServer, command: &'static [&'static str]) -> Result<Option<JoinHandle<()>>> {
    let client = redis::Client::open(server.url())?;
    let thread = std::thread::Builder::new().spawn(move || {
        if let Ok(mut connection) = connect(LONG, &client) {
            // SCRIPT KILL ends it with an error.
            let _ = redis::Cmd::new().arg(command).query::<()>(&mut connection);
        }
    });
    Ok(Some(thread?))
}

pub const LOADING: State = State {
    reason: "loading",
    begin: |server| {
        all(
            server,
            &[
                &["DEBUG", "POPULATE", "300", "filler", "4096"],
                &["CONFIG", "SET", "rdbcompression", "no"],
                &["CONFIG", "SET", "loading-process-events-interval-bytes", "4096"],
                &["CONFIG", "SET", "key-load-delay", "10000"],
            ],
        )?;
        long(server, &["DEBUG", "RELOAD"])
    },
    end: |_| Ok(()),
};
pub const BUSY: State = State {
    reason: "busy",
    begin: |server| {
        all(server, &[&["CONFIG", "SET", "lua-time-limit", "50"]])?;
        long(server, &["EVAL", "while true do end", "0"])
    },
    end: |server| all(server, &[&["SCRIPT", "KILL"]]),
};
pub const OUT_OF_MEMORY: State = State {
    reason: "out_of_memory",
    begin: |server| all(server, &[&["CONFIG", "SET", "maxmemory", "1"]]).map(|()| None),
    end: |server| all(server, &[&["CONFIG", "SET", "maxmemory", "0"]]),
};
pub const READ_ONLY: State = State {
    reason: "read_only",
    begin: |server| all(server, &[&["REPLICAOF", "127.0.0.1", "1"]]).map(|()| None),
    end: |server| all(server, &[&["REPLICAOF", "NO", "ONE"]]),
};
pub const NO_REPLICAS: State = State {
    reason: "no_replicas",
    begin: |server| all(server, &[&["CONFIG", "SET", "min-replicas-to-write", "1"]]).map(|()| None),
    end: |server| all(server, &[&["CONFIG", "SET", "min-replicas-to-write", "0"]]),
};
/// A snapshot that cannot be written, because its folder is gone.
pub const CANNOT_SAVE: State = State {
    reason: "misconf",
    begin: |server| {
        let gone = testkit::folder();
        let folder = gone.path().display().to_string();
        all(server, &[&["CONFIG", "SET", "save", "3600 100000"], &["CONFIG", "SET", "dir", &folder]])?;
        drop(gone);
        all(server, &[&["BGSAVE"]]).map(|()| None)
    },
    end: |server| all(server, &[&["CONFIG", "SET", "save", ""]]),
};
pub const DENIED: State = State {
    reason: "refused",
    begin: |server| all(server, &[&["ACL", "SETUSER", "weir", "-evalsha"]]).map(|()| None),
    end: |server| all(server, &[&["ACL", "SETUSER", "weir", "+evalsha"]]),
};

pub fn answers(ground: &mut Ground, order: &Order, state: &State) -> Result<Findings> {
    let debug = ["--enable-debug-command", "yes", "--enable-protected-configs", "yes"];
    let user = ["--user", "weir", "on", ">secret", "~*", "&*", "+@all"];
    let server = RedisServer::start(&[&debug[..], &user[..]].concat())?;
    let url = format!("redis://weir:secret@127.0.0.1:{}", server.port());
    let (mut trial, worker) = on(ground, order, state.reason, vec![url])?.at_work("answered", &[TIMEOUT])?;
    trial.decided(300)?;
    for _ in 0..order.times {
        let busy = (state.begin)(&server)?;
        trial.live(worker, LASTS)?;
        (state.end)(&server)?;
        if let Some(busy) = busy {
            busy.join().map_err(|_| anyhow!("the long command panicked"))?;
        }
        trial.comes_back()?;
    }
    met(&mut trial, worker, state.reason)?;
    trial.finish(order.times)
}

pub fn reply_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let server = RedisServer::start::<&str>(&[])?;
    let proxy = Proxy::start(server.url().trim_start_matches("redis://"))?;
    let (mut trial, worker) =
        on(ground, order, "reply-lost", vec![format!("redis://{}", proxy.address())])?.at_work("deaf", &[TIMEOUT])?;
    for _ in 0..order.times {
        trial.decided(100)?;
        proxy.set(Mode::LoseReply);
        trial.until("a reply is lost", || proxy.mode() == Mode::Pass)?;
        trial.comes_back()?;
    }
    met(&mut trial, worker, "connection_lost")?;
    trial.finish(order.times)
}

/// Redis answers after the timeout, again and again: the script has run each time.
pub fn reply_late(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let server = RedisServer::start::<&str>(&[])?;
    let (mut trial, worker) = on(ground, order, "reply-late", vec![server.url()])?.at_work("late", &[TIMEOUT])?;
    for _ in 0..order.times {
        trial.decided(100)?;
        all(&server, &[&["CLIENT", "PAUSE", "1000", "ALL"]])?;
        trial.live(worker, Duration::from_millis(1_000))?;
        trial.comes_back()?;
    }
    met(&mut trial, worker, "timeout")?;
    trial.finish(order.times)
}

/// Servers that a worker must refuse, beside one that runs.
pub fn refused(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let server = RedisServer::start::<&str>(&[])?;
    let (mut trial, worker) = on(ground, order, "refused", vec![server.url()])?.at_work("works", &[])?;
    let foreign = ("WEIR__REDIS__PREFIX", "foreign");
    all(&server, &[&["HSET", "foreign:{foreign}:meta", "format", "another/1", "shards", "64"]])?;
    for time in 0..order.times {
        all(&server, &[&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]])?;
        let evicting = trial.start(&format!("evicting-{time}"), &[]);
        trial.ends(evicting, 1, &["allkeys-lru", "noeviction", "redis.allow_eviction"])?;
        all(&server, &[&["CONFIG", "SET", "maxmemory-policy", "noeviction"]])?;
        let shards = trial.start(&format!("shards-{time}"), &[("WEIR__REDIS__SHARDS", "128")]);
        trial.ends(shards, 1, &["redis.shards is 128", "made with 64"])?;
        let stranger = trial.start(&format!("foreign-{time}"), &[foreign]);
        trial.ends(stranger, 1, &["redis.prefix"])?;
        trial.comes_back()?;
    }
    trial.live(worker, Duration::ZERO)?;
    trial.note("each of the three exits with 1 and instructions; the worker beside them continues");
    trial.finish(order.times)
}

const STALL: Duration = Duration::from_secs(12);
/// How long intents live, and how much later one may become visible: the time of a batch and its commit.
const LIVE_MS: i64 = 4_000;
const SLACK_MS: i64 = 5_000;
/// Intents of each kind in a stall.
const EACH: usize = 200;
/// The users without caps get one: shorter than a stall, on a channel that the load does not use.
const NO_CAPS: &str = "[segments.staff]\ncaps = \"unlimited\"";
const WINDOW_MS: i64 = 8_000;
const ONE_CAP: &str =
    "[segments.staff]\ncaps = [{ name = \"brief\", limit = 1, window = \"8s\", channel = \"stall\" }]";

#[derive(Debug, Clone, Copy)]
enum Step {
    Begin,
    End,
}

/// The nodes of a cluster drop requests that were given up meanwhile.
pub fn paused(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let trial = plain(ground, order, "paused-past-expiry")?;
    let cluster = ground.cluster()?;
    stalls(trial, order, |step| match step {
        Step::Begin => pause(cluster, STALL),
        // The pause ends by itself.
        Step::End => Ok(()),
    })
}

/// A server executes the requests that were sent meanwhile when it wakes.
pub fn frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut redis = RedisServer::start::<&str>(&[])?;
    let trial = on(ground, order, "frozen-past-expiry", vec![redis.url()])?;
    stalls(trial, order, |step| {
        match step {
            Step::Begin => redis.freeze(),
            Step::End => redis.thaw(),
        }
        Ok(())
    })
}

/// Under load, intents are published that expire within the stall, and sends to users whose cap's window ends within it;
/// right after the stall each of those users gets another intent.
fn stalls(trial: Trial, order: &Order, mut stall: impl FnMut(Step) -> Result<()>) -> Result<Findings> {
    trial.scene.write_policy(&POLICY.replace(NO_CAPS, ONE_CAP));
    let (mut trial, worker) = trial.at_work("stalled", &[])?;
    trial.decided(500)?;
    for time in 0..order.times {
        let publish = |trial: &Trial, kind: &str, from: usize, expires_at: Option<i64>| {
            let one = |number: usize| one(&format!("{kind} {time} {number}"), from + number, expires_at);
            trial.kafka.publish(&trial.scene.topic("intents"), (0..EACH).map(one))
        };
        stall(Step::Begin)?;
        publish(&trial, "expires", 3_000, Some(now_ms() + LIVE_MS))?;
        publish(&trial, "window", 3_000 + EACH, None)?;
        trial.live(worker, STALL)?;
        stall(Step::End)?;
        let mark = trial.over()?;
        publish(&trial, "again", 3_000 + EACH, None)?;
        trial.back(&mark)?;
    }
    trial.drain()?;
    by_true_time(&mut trial)?;
    trial.finish(order.times)
}

fn one(name: &str, user: usize, expires_at: Option<i64>) -> Record {
    let mut more = json!({ "channel": "stall" });
    if let Some(expires_at) = expires_at {
        more["expires_at"] = expires_at.into();
    }
    intent(name, user, more)
}

/// No intent became visible long after it had expired or long after it was decided, and nobody had two sends in a window.
fn by_true_time(trial: &mut Trial) -> Result<()> {
    let approved = trial.scene.slim_output("approved");
    let mut decided_at = HashMap::new();
    let mut latest_ms = 0;
    for record in approved.into_iter().filter(|record| header(record, CASE).is_some()) {
        let visible_ms = record.timestamp_ms.context("an output has no time")?;
        let intent: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        let (id, decision) = Decision::approval(record);
        if let Some(expires_ms) = intent["expires_at"].as_i64() {
            ensure!(visible_ms <= expires_ms + SLACK_MS, "{id} expired {} ms before", visible_ms - expires_ms);
        }
        latest_ms = latest_ms.max(visible_ms - decision.at_ms);
        ensure!(decision.at_ms + SLACK_MS >= visible_ms, "{id} was decided {} ms before", visible_ms - decision.at_ms);
        decided_at.insert(id, decision.at_ms);
    }
    for (id, again_ms) in &decided_at {
        let first_ms = id.strip_prefix("again").and_then(|which| decided_at.get(&format!("window{which}")));
        let apart_ms = first_ms.map(|first_ms| again_ms - first_ms);
        ensure!(
            apart_ms.is_none_or(|apart_ms| apart_ms >= WINDOW_MS),
            "the user of {id} had two sends in one window: they were decided {} ms apart",
            apart_ms.unwrap_or_default()
        );
    }
    let windows = decided_at.keys().filter(|id| id.starts_with("window")).count();
    ensure!(windows > 0, "no send of a short window was approved: nothing was tried");
    trial.note(format!("approved records are visible at most {latest_ms} ms after their `decided_at`"));
    Ok(())
}
