//! Pressure between instances, beside the published method: `cargo xtask bench pressure`.
//!
//! The published method keeps thirty Bloom filters of a minute each, and exchanges all of them under one key ([`published`]). weir's
//! instances take turns at a log ([`ours`]), by the code of `weir run`. Instances are tasks and threads of this process, with one
//! Redis, and a load that is the same for both: first users who are active have intents, then more new users come than there is
//! room for.

mod load;
mod ours;
mod published;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::Table;
use redis::InfoDict;
use testkit::redis::RedisServer;
use weir_core::{basis::shard::UserHash, limit::pressure::activity::ActivityHash};

use self::{load::Load, ours::Ours, published::Published};
use crate::{
    goals::{self, Goal, Wanted},
    report::{quantile, table},
};

const GOAL_INSTANCES: usize = 10;

#[derive(Debug, Clone, Args)]
pub struct Pressure {
    /// The most users that may be active
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    users: u32,
    /// Seconds of each of the two parts of a run
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(5..=300))]
    seconds: u32,
    /// Numbers of instances
    #[arg(long, value_delimiter = ',', default_value = "1,4,10,40", value_parser = clap::value_parser!(u16).range(1..=100))]
    instances: Vec<u16>,
}

/// An instance, as the load sees it.
trait Instance: Send + Sync {
    fn is_active(&self, user: ActivityHash) -> bool;
    fn touch(&self, user: ActivityHash);
    /// An intent of a user: whether it is approved, and the user active from now on.
    fn admit(&self, user: ActivityHash) -> bool;
}

trait Running: Sized {
    /// Starts so many on a Redis, which know of the users of the load who are active from the start.
    fn start(server: &RedisServer, load: &Load, instances: usize) -> Result<Self>;
    fn instances(&self) -> Vec<&dyn Instance>;
    fn stop(self) -> Result<()>;
}

fn user(number: u32) -> ActivityHash {
    UserHash::of(&number.to_string()).into()
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    method: &'static str,
    instances: usize,
    /// To and from Redis in the first part, all instances together.
    bytes_a_s: f64,
    /// Until another instance knows who became active, in seconds.
    stale_p50_s: f64,
    stale_p99_s: f64,
    /// Users who were active at the end of the second part, of the maximum.
    active_share: f64,
}

/// Measures each number of instances by both methods.
pub fn run(settings: &Pressure) -> Result<String> {
    let mut measured = Vec::new();
    for instances in settings.instances.iter().map(|instances| usize::from(*instances)) {
        eprintln!("{instances} instances");
        measured.push(measure::<Published>("published", settings, instances).context("the published method")?);
        measured.push(measure::<Ours>("weir", settings, instances).context("weir")?);
    }
    let goals = goals(&measured);
    Ok(format!("{}\n\n{}", rows(&measured), goals::lines(&goals)))
}

fn measure<R: Running>(method: &'static str, settings: &Pressure, instances: usize) -> Result<Measured> {
    let server = RedisServer::start::<&str>(&[])?;
    let mut load = Load::new(settings.users);
    let running = R::start(&server, &load, instances)?;
    let part = Duration::from_secs(settings.seconds.into());
    let bytes_before = bytes(&server)?;
    let took = load.steady(&running.instances(), part).as_secs_f64();
    let bytes_after = bytes(&server)?;
    load.rush(&running.instances(), part);
    let stale = load.staleness(&running.instances());
    running.stop()?;
    let bytes_a_s = (bytes_after - bytes_before) / took;
    let [stale_p50_s, stale_p99_s] = [0.5, 0.99].map(|share| quantile(&stale, share));
    let active_share = f64::from(load.active()) / f64::from(settings.users);
    Ok(Measured { method, instances, bytes_a_s, stale_p50_s, stale_p99_s, active_share })
}

/// Bytes that have reached and left a server.
fn bytes(server: &RedisServer) -> Result<f64> {
    let info: InfoDict = server.query(&["INFO", "stats"])?;
    let of = |name: &str| info.get::<f64>(name).with_context(|| format!("INFO without {name}"));
    Ok(of("total_net_input_bytes")? + of("total_net_output_bytes")?)
}

fn goals(measured: &[Measured]) -> Vec<Goal> {
    let of = |method: &str| {
        measured.iter().find(|measured| measured.method == method && measured.instances == GOAL_INSTANCES)
    };
    let most = measured.iter().filter(|measured| measured.method == "weir").map(|measured| measured.active_share);
    let most = most.fold(0.0, f64::max);
    let (Some(ours), Some(theirs)) = (of("weir"), of("published")) else { return Vec::new() };
    let bytes = ours.bytes_a_s / theirs.bytes_a_s;
    vec![
        Goal::of(13, "bytes of pressure at 10 instances, of the published method's", Wanted::AtMost(0.20), bytes),
        Goal::of(13, "active users at the end, of the maximum", Wanted::AtMost(1.02), most),
    ]
}

fn rows(measured: &[Measured]) -> Table {
    let head =
        ["instances, method", "KiB/s", "others know after, p50, s", "p99, s", "active at the end, % of the maximum"];
    let row = |measured: &Measured| {
        [
            format!("{}, {}", measured.instances, measured.method),
            format!("{:.1}", measured.bytes_a_s / 1024.0),
            format!("{:.2}", measured.stale_p50_s),
            format!("{:.2}", measured.stale_p99_s),
            format!("{:.1}", measured.active_share * 100.0),
        ]
    };
    table(head, measured.iter().map(row))
}
