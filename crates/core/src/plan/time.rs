//! How long a blast, a rebuild and a queue take.

use super::{BadGiven, Constant, Given, Measured, Plan, Section, Unit, Writer, store::Redis, worker::Workers};

pub(super) fn plan(
    plan: &mut Plan,
    given: &Given,
    measured: &Measured,
    redis: &Redis,
    workers: &Workers,
) -> Result<(), BadGiven> {
    let mut out = Writer { plan, section: Section::Time };
    let per_s = Unit::PerSecond;
    let (by_lanes, by_redis) = (workers.lanes * workers.lane_per_s, redis.primaries * 1e6 / redis.decision_us);
    let drain = by_lanes.min(by_redis);
    let formula = format!(
        "the smaller of {} lanes x {} and {} primaries / {:.1} us, all of them busy",
        workers.lanes,
        per_s.show(workers.lane_per_s),
        redis.primaries,
        redis.decision_us
    );
    out.line(("drain_per_s", "most that is drained"), (drain, per_s), formula, &[]);
    blast(&mut out, given, drain);
    rebuild(&mut out, given, measured, redis);
    queue(&mut out, given, drain)
}

fn blast(out: &mut Writer<'_>, given: &Given, drain: f64) {
    let Given { blast, rate, .. } = *given;
    let per_s = Unit::PerSecond;
    if drain <= rate {
        let remark = format!(
            "{} are drained at most and {} come in on the average: the queue grows without end.",
            per_s.show(drain),
            per_s.show(rate)
        );
        out.plan.remark(remark);
        return;
    }
    let formula =
        format!("{} / ({} - {} that come in besides)", Unit::Count.show(blast), per_s.show(drain), per_s.show(rate));
    out.line(("blast", "a blast is drained in"), (blast / (drain - rate), Unit::Seconds), formula, &[]);
}

fn rebuild(out: &mut Writer<'_>, given: &Given, measured: &Measured, redis: &Redis) {
    let cores = given.rebuild_cores;
    let a_core = 1e6 / measured.rebuild_us;
    let formula = format!("1 s / {:.1} us; {} a minute", measured.rebuild_us, Unit::Count.show(a_core * 60.0));
    let constants = [Constant::RebuildUs];
    let named = ("rebuild_per_s", "sends a core restores");
    out.line(named, (a_core, Unit::PerSecond), formula, &constants);
    let by_redis = redis.primaries * 1e6 / redis.decision_us;
    let rate = (cores * a_core).min(by_redis);
    let per_s = Unit::PerSecond;
    let formula = format!(
        "{} sends / the smaller of {cores} cores x {} and {} of Redis",
        Unit::Count.show(redis.sends),
        per_s.show(a_core),
        per_s.show(by_redis)
    );
    out.line(("rebuild", "weir rebuild takes"), (redis.sends / rate, Unit::Seconds), formula, &[]);
}

fn queue(out: &mut Writer<'_>, given: &Given, drain: f64) -> Result<(), BadGiven> {
    let Given { timeout_s, round_trip_s, processing_s, .. } = *given;
    let seconds = Unit::Seconds;
    let wait = timeout_s - 2.0 * round_trip_s - processing_s;
    let formula = format!(
        "{} time-out - 2 x {} network - {} processing",
        seconds.show(timeout_s),
        seconds.show(round_trip_s),
        seconds.show(processing_s)
    );
    if wait <= 0.0 {
        return Err(BadGiven(format!(
            "--delivery-timeout leaves no time to wait in a queue: {formula} is not above 0"
        )));
    }
    out.line(("queue_wait", "longest wait in the queue"), (wait, seconds), formula, &[]);
    let formula = format!("{} x {}; what lies behind is late", seconds.show(wait), Unit::PerSecond.show(drain));
    out.line(("queue_size", "longest queue"), ((wait * drain).floor(), Unit::Count), formula, &[]);
    Ok(())
}
