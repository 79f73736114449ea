//! Partitions, rates and disks of Kafka, and the network around the workers.

use super::{Constant, Given, Measured, PARTITIONS_A_LANE, Plan, Section, Unit, Writer, worker::Workers};

pub(super) fn plan(plan: &mut Plan, given: &Given, measured: &Measured, workers: &Workers) {
    let mut out = Writer { plan, section: Section::Kafka };
    let (partitions, formula) = match given.partitions {
        Some(partitions) => (partitions, "given".to_owned()),
        None => {
            let formula = format!("{} lanes x {PARTITIONS_A_LANE}, room to grow without moving users", workers.lanes);
            (workers.lanes * PARTITIONS_A_LANE, formula)
        }
    };
    out.line(("partitions", "partitions of intents"), (partitions, Unit::Count), formula, &[]);
    let approved_bytes = network(&mut out, given, measured);

    let Given { rate, approved, history_s, replication, .. } = *given;
    let disk = rate * approved * approved_bytes * history_s * replication;
    let formula = format!(
        "{} approved x {} x {} history x {replication} copies, for weir rebuild; before compression",
        Unit::PerSecond.show(rate * approved),
        Unit::Bytes.show(approved_bytes),
        Unit::Seconds.show(history_s)
    );
    out.line(("approved_disk", "approved topic, on disk"), (disk, Unit::Bytes), formula, &[Constant::HeadersBytes]);
}

/// Gives the bytes of an approved record.
fn network(out: &mut Writer<'_>, given: &Given, measured: &Measured) -> f64 {
    let Given { peak, approved, key_bytes, value_bytes, .. } = *given;
    let (per_s, unit) = (Unit::PerSecond.show(peak), Unit::BytesPerSecond);
    let intent = key_bytes + value_bytes;
    let formula = format!("{per_s} at the peak x ({key_bytes} B key + {value_bytes} B intent)");
    out.line(("kafka_read", "Kafka to workers"), (peak * intent, unit), formula, &[]);

    let Measured { headers_bytes, envelope_bytes, .. } = *measured;
    let written = approved * (intent + headers_bytes) + (1.0 - approved) * (intent + envelope_bytes);
    let formula = format!(
        "{per_s} x ({approved} approved x ({intent} + {headers_bytes:.0} B headers) + {} suppressed x ({intent} + \
         {envelope_bytes:.0} B envelope))",
        // As it reads, not as binary fractions are.
        Unit::Count.show(1.0 - approved)
    );
    let constants = [Constant::HeadersBytes, Constant::EnvelopeBytes];
    out.line(("kafka_write", "workers to Kafka"), (peak * written, unit), formula, &constants);

    let formula = format!("{per_s} x {:.0} B", measured.redis_in_bytes);
    let constants = [Constant::RedisInBytes];
    out.line(("redis_in", "workers to Redis"), (peak * measured.redis_in_bytes, unit), formula, &constants);
    let formula = format!("{per_s} x {:.0} B", measured.redis_out_bytes);
    let constants = [Constant::RedisOutBytes];
    out.line(("redis_out", "Redis to workers"), (peak * measured.redis_out_bytes, unit), formula, &constants);
    intent + headers_bytes
}
