//! Memory, CPU and nodes of Redis.

use super::{
    BadGiven, Constant, Curve, FEWEST_PRIMARIES, Given, Measured, Plan, Section, Unit, Writer, given::MOST_SENDS,
};

/// What the other sections ask of this one.
pub(super) struct Redis {
    /// Sends in all histories.
    pub sends: f64,
    /// CPU of a decision, in microseconds.
    pub decision_us: f64,
    /// Primaries.
    pub primaries: f64,
}

pub(super) fn plan(plan: &mut Plan, given: &Given, measured: &Measured) -> Result<Redis, BadGiven> {
    let mut out = Writer { plan, section: Section::Redis };
    let sends = sends_a_user(&mut out, given)?;
    let resident = memory(&mut out, given, measured, sends);
    let (decision_us, by_cpu) = cpu(&mut out, given, measured, sends);
    let by_memory = nodes_by_memory(&mut out, given, measured, resident)?;

    let needed = by_memory.max(by_cpu);
    // A cluster has at least three; one server is none.
    let primaries = if needed > 1.0 { needed.max(FEWEST_PRIMARIES) } else { needed };
    let formula = format!("the larger of {by_memory} by memory and {by_cpu} by CPU; a cluster has at least 3");
    out.line(("redis_primaries", "primaries"), (primaries, Unit::Count), formula, &[]);
    let Given { replicas, shards, .. } = *given;
    let nodes = primaries * (1.0 + replicas);
    let formula = format!("{primaries} primaries x (1 + {replicas} replicas)");
    out.line(("redis_nodes", "nodes"), (nodes, Unit::Count), formula, &[]);
    let all = (resident + primaries * measured.empty_node_bytes) * (1.0 + replicas);
    let formula = format!(
        "({} + {primaries} primaries x {}) x (1 + {replicas} replicas)",
        Unit::Bytes.show(resident),
        Unit::Bytes.show(measured.empty_node_bytes)
    );
    out.line(("redis_all_memory", "memory of all nodes"), (all, Unit::Bytes), formula, &[Constant::EmptyNodeBytes]);
    if primaries > shards {
        plan.remark(format!(
            "{primaries} primaries are more than the {shards} shards: the nodes above that would have nothing to do. \
             Set redis.shards to {} or more when the keyspace is made (16,384 at most).",
            (primaries * 4.0).min(16_384.0)
        ));
    }
    if primaries > 16_384.0 {
        plan.remark("A Redis Cluster has 16,384 slots and so no more primaries: take larger nodes.".to_owned());
    }
    Ok(Redis { sends: given.users * sends, decision_us, primaries })
}

fn sends_a_user(out: &mut Writer<'_>, given: &Given) -> Result<f64, BadGiven> {
    let Given { users, rate, approved, history_s, .. } = *given;
    let by_rate = rate * approved * history_s / users;
    let by_rate_in_words = format!(
        "{} approved x {} history / {} users",
        Unit::PerSecond.show(rate * approved),
        Unit::Seconds.show(history_s),
        Unit::Count.show(users)
    );
    let (sends, formula) = match (given.sends, &given.most_sends) {
        (Some(sends), _) => (sends, "given".to_owned()),
        (None, Some(most)) if most.sends < by_rate => {
            (most.sends, format!("the policy's most ({}), less than {by_rate_in_words}", most.because))
        }
        (None, _) => (by_rate, by_rate_in_words),
    };
    if sends > MOST_SENDS {
        return Err(BadGiven(format!(
            "--rate makes {} sends a user ({formula}), which nobody is sent: check --users, --rate and --history, or give \
             --policy or --sends, of which {} are the most",
            Unit::Count.show(sends),
            Unit::Count.show(MOST_SENDS)
        )));
    }
    Ok(out.line(("sends_a_user", "sends a user"), (sends, Unit::Count), formula, &[]))
}

fn memory(out: &mut Writer<'_>, given: &Given, measured: &Measured, sends: f64) -> f64 {
    let (bytes, formula) = user_bytes(&measured.user_bytes, sends);
    let constants = [Constant::UserBytes];
    out.line(("redis_user_bytes", "memory a user"), (bytes, Unit::Bytes), formula, &constants);
    let histories = given.users * bytes;
    let formula = format!("{} users x {}, keys and all", Unit::Count.show(given.users), Unit::Bytes.show(bytes));
    out.line(("redis_histories", "histories"), (histories, Unit::Bytes), formula, &[]);
    // Below 1 it would say that the servers were swapped out.
    let ratio = measured.resident_ratio.max(1.0);
    let formula = format!("{} x {ratio:.2} resident over allocated", Unit::Bytes.show(histories));
    let constants = [Constant::ResidentRatio];
    out.line(("redis_resident", "with fragmentation"), (histories * ratio, Unit::Bytes), formula, &constants)
}

/// Memory of a user of so many sends. A user of none takes none.
fn user_bytes(curve: &Curve, sends: f64) -> (f64, String) {
    let (low, high) = curve.around(sends);
    let show = |(at, bytes): (f64, f64)| format!("{} at {at} sends", Unit::Bytes.show(bytes));
    if sends < low.0 {
        return (low.1 * sends / low.0, format!("{} x {}", show(low), Unit::Count.show(sends)));
    }
    let bytes = curve.at(sends);
    match [low, high].into_iter().find(|point| point.0 == sends) {
        Some(point) => (bytes, show(point)),
        None => (bytes, format!("on the line through {} and {}", show(low), show(high))),
    }
}

fn cpu(out: &mut Writer<'_>, given: &Given, measured: &Measured, sends: f64) -> (f64, f64) {
    let base = measured.redis_us_by_sends.at(sends);
    let (caps, two) = (measured.redis_us_by_caps.at(given.caps), measured.redis_us_by_caps.at(2.0));
    // Fewer caps than the two it was measured with are no reason to promise less.
    let more = (caps - two).max(0.0);
    let decision_us = base + more;
    let formula = format!(
        "{base:.1} us at {} sends and 2 caps + {more:.1} us for {} caps in place of 2",
        Unit::Count.show(sends),
        given.caps.max(2.0)
    );
    let constants = [Constant::RedisUsBySends, Constant::RedisUsByCaps];
    out.line(("redis_decision_us", "CPU a decision"), (decision_us, Unit::Micros), formula, &constants);
    let cores = given.peak * decision_us / 1e6;
    let formula = format!("{} at the peak x {decision_us:.1} us", Unit::PerSecond.show(given.peak));
    out.line(("redis_cores", "CPU"), (cores, Unit::Cores), formula, &[]);
    let nodes = (cores / given.redis_load).ceil().max(1.0);
    let formula = format!("{} / {} of a node's one core, rounded up", Unit::Cores.show(cores), given.redis_load);
    out.line(("redis_primaries_by_cpu", "primaries for CPU"), (nodes, Unit::Count), formula, &[]);
    (decision_us, nodes)
}

fn nodes_by_memory(out: &mut Writer<'_>, given: &Given, measured: &Measured, resident: f64) -> Result<f64, BadGiven> {
    let Given { node_bytes, memory_share, .. } = *given;
    let usable = node_bytes * memory_share - measured.empty_node_bytes;
    if usable <= 0.0 {
        return Err(BadGiven(format!(
            "--node-memory: {memory_share} of {} is less than the {} that an empty server takes",
            Unit::Bytes.show(node_bytes),
            Unit::Bytes.show(measured.empty_node_bytes)
        )));
    }
    let nodes = (resident / usable).ceil().max(1.0);
    let formula = format!(
        "{} / ({} x {memory_share} - {} of an empty server), rounded up",
        Unit::Bytes.show(resident),
        Unit::Bytes.show(node_bytes),
        Unit::Bytes.show(measured.empty_node_bytes)
    );
    let constants = [Constant::EmptyNodeBytes];
    Ok(out.line(("redis_primaries_by_memory", "primaries for memory"), (nodes, Unit::Count), formula, &constants))
}
