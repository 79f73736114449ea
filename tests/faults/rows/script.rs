//! Errors, lost and late replies of Redis, and keyspaces that weir refuses. Rows 5, 16, 17, 19.

use std::{thread::JoinHandle, time::Duration};

use anyhow::{Result, anyhow, ensure};
use testkit::{
    proxy::{Mode, Proxy},
    redis::{RedisServer, connect},
};

use super::{on, under_load};
use crate::{
    ground::Ground,
    support::http::metric,
    trial::{Findings, Order, Trial},
};

/// How long a command may take that is to take long.
const LONG: Duration = Duration::from_secs(60);
/// How long a state lasts.
const LASTS: Duration = Duration::from_secs(3);
/// A reply that takes longer is given up.
const TIMEOUT: (&str, &str) = ("WEIR__REDIS__TIMEOUT", "300ms");

pub fn flushed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = under_load(ground, order, "script-flush")?;
    let worker = trial.start_ready("flushed", &[])?;
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

/// One server; weir's user has all rights.
fn single() -> Result<(RedisServer, String)> {
    let debug = ["--enable-debug-command", "yes", "--enable-protected-configs", "yes"];
    let user = ["--user", "weir", "on", ">secret", "~*", "&*", "+@all"];
    let server = RedisServer::start(&[&debug[..], &user[..]].concat())?;
    let url = format!("redis://weir:secret@127.0.0.1:{}", server.port());
    Ok((server, url))
}

pub fn answers(ground: &mut Ground, order: &Order, state: &State) -> Result<Findings> {
    let (server, url) = single()?;
    let mut trial = on(ground, order, state.reason, vec![url])?;
    trial.load(0)?;
    let worker = trial.start_ready("answered", &[TIMEOUT])?;
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

/// The script ran and its reply is lost.
pub fn reply_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let server = RedisServer::start::<&str>(&[])?;
    let proxy = Proxy::start(server.url().trim_start_matches("redis://"))?;
    let mut trial = on(ground, order, "reply-lost", vec![format!("redis://{}", proxy.address())])?;
    trial.load(0)?;
    let worker = trial.start_ready("deaf", &[TIMEOUT])?;
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
    let mut trial = on(ground, order, "reply-late", vec![server.url()])?;
    trial.load(0)?;
    let worker = trial.start_ready("late", &[TIMEOUT])?;
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
    let mut trial = on(ground, order, "refused", vec![server.url()])?;
    trial.load(0)?;
    let worker = trial.start_ready("works", &[])?;
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
