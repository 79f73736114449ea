//! The process's own figures, by the names that clients of Prometheus share; read from /proc at each scrape.

use std::fmt;

use procfs::{
    ProcResult, WithCurrentSystemInfo as _,
    process::{LimitValue, Process},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

#[derive(Debug)]
pub(super) struct ProcessFigures;

impl Collector for ProcessFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Where /proc cannot be read, the other metrics are still reported.
        let Ok((cpu_seconds, gauges)) = read() else { return Ok(()) };
        let help = "User and system CPU time of the process.";
        let counter = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter);
        counter?.encode_counter::<NoLabelSet, _, f64>(&cpu_seconds, None)?;
        for (name, help, value) in gauges {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// Name, help and value.
type ProcessRow = (&'static str, &'static str, f64);

/// The CPU time, and the gauges.
fn read() -> ProcResult<(f64, [ProcessRow; 6])> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let seconds = |ticks: u64| number(ticks) / number(procfs::ticks_per_second());
    let max_fds = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(most) => number(most),
        LimitValue::Unlimited => f64::INFINITY,
    };
    let start = number(procfs::boot_time_secs()?) + seconds(stat.starttime);
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory of the process.", number(stat.rss_bytes().get())),
        ("process_virtual_memory_bytes", "Virtual memory of the process.", number(stat.vsize)),
        ("process_open_fds", "Open file descriptors of the process.", number(process.fd_count()? as u64)),
        ("process_max_fds", "Most file descriptors that the process may open.", max_fds),
        ("process_threads", "Threads of the process.", number(stat.num_threads.unsigned_abs())),
        ("process_start_time_seconds", "Start of the process, in seconds since 1970.", start),
    ];
    Ok((seconds(stat.utime + stat.stime), gauges))
}

/// A count, to be shown.
fn number(count: u64) -> f64 {
    count as f64
}
