//! Lanes, instances, cores and memory of the workers.

use super::{COMMIT_ROUND_TRIPS, Constant, Given, Measured, Plan, Section, Unit, Writer};

/// Users whose ids share a container of a roaring bitmap, and its largest size in bytes: its format says so.
const CONTAINER_IDS: f64 = 65_536.0;
const CONTAINER_BYTES: f64 = 8192.0;

/// What the other sections ask of this one.
pub(super) struct Workers {
    /// Lanes.
    pub lanes: f64,
    /// Intents a second that one of them takes at most.
    pub lane_per_s: f64,
}

pub(super) fn plan(plan: &mut Plan, given: &Given, measured: &Measured) -> Workers {
    let mut out = Writer { plan, section: Section::Workers };
    let lane_per_s = lane_rate(&mut out, given, measured);
    let needed = (given.peak / (lane_per_s * given.lane_load)).ceil().max(1.0);
    let per_s = Unit::PerSecond;
    let formula = format!(
        "{} at the peak / ({} x {} load), rounded up",
        per_s.show(given.peak),
        per_s.show(lane_per_s),
        given.lane_load
    );
    out.line(("lanes_needed", "lanes needed"), (needed, Unit::Count), formula, &[]);
    let lanes = given.partitions.map_or(needed, |partitions| needed.min(partitions));
    let formula = match given.partitions {
        Some(partitions) => format!("the smaller of {needed} needed and {partitions} partitions"),
        None => "as needed".to_owned(),
    };
    out.line(("lanes", "lanes"), (lanes, Unit::Count), formula, &[]);
    let instances = (lanes / given.lanes_an_instance).ceil();
    let formula = format!("{lanes} lanes / {} an instance, rounded up", given.lanes_an_instance);
    out.line(("instances", "instances"), (instances, Unit::Count), formula, &[]);
    let cores = given.peak * measured.worker_us / 1e6;
    let formula = format!("{} at the peak x {:.1} us", per_s.show(given.peak), measured.worker_us);
    out.line(("worker_cores", "CPU"), (cores, Unit::Cores), formula, &[Constant::WorkerUs]);
    memory(&mut out, given, measured, instances);
    if lanes < needed {
        plan.remark(format!(
            "{lanes} partitions feed no more than {lanes} lanes, and the peak needs {needed}: make partitions before there \
             is traffic (a user's intents may change places while some are waiting), or accept a queue at the peak."
        ));
    }
    Workers { lanes, lane_per_s }
}

fn lane_rate(out: &mut Writer<'_>, given: &Given, measured: &Measured) -> f64 {
    let Given { batch, round_trip_s, .. } = *given;
    let by_cpu = measured.lane_per_s;
    let by_commit = if round_trip_s > 0.0 { batch / (COMMIT_ROUND_TRIPS * round_trip_s) } else { f64::INFINITY };
    let per_s = Unit::PerSecond;
    let commits = format!(
        "{} intents / ({COMMIT_ROUND_TRIPS} round trips a commit x {})",
        batch,
        Unit::Seconds.show(round_trip_s)
    );
    let (rate, formula) = if by_commit < by_cpu {
        (by_commit, format!("{commits}, less than the {} measured", per_s.show(by_cpu)))
    } else {
        (by_cpu, format!("measured; {commits} would allow more"))
    };
    out.line(("lane_per_s", "a lane's rate"), (rate, per_s), formula, &[Constant::LanePerS])
}

fn memory(out: &mut Writer<'_>, given: &Given, measured: &Measured, instances: f64) {
    let Given { users, segments, lanes_an_instance, .. } = *given;
    // In containers of bits where a segment has more than 4,096 of 65,536 users, in lists of 2 bytes where it has less.
    let bits = segments * (users / CONTAINER_IDS).ceil() * CONTAINER_BYTES;
    let bitmaps = bits.min(2.0 * users);
    let formula = format!(
        "the smaller of {segments} segments x {} containers x 8 KiB and {} users x 2 B, for u32 ids without gaps",
        Unit::Count.show((users / CONTAINER_IDS).ceil()),
        Unit::Count.show(users)
    );
    out.line(("segments_memory", "a set of segments"), (bitmaps, Unit::Bytes), formula, &[]);
    let one = lanes_an_instance * measured.worker_bytes + 2.0 * bitmaps;
    let formula = format!(
        "{lanes_an_instance} lanes x {} + 2 x {} (the old set stays while a new one is read)",
        Unit::Bytes.show(measured.worker_bytes),
        Unit::Bytes.show(bitmaps)
    );
    let constants = [Constant::WorkerBytes];
    out.line(("instance_memory", "memory of an instance"), (one, Unit::Bytes), formula, &constants);
    let formula = format!("{instances} instances x {}", Unit::Bytes.show(one));
    out.line(("worker_memory", "memory of all"), (one * instances, Unit::Bytes), formula, &[]);
}
