//! Where a run took place.

use std::process::Command;

use serde::Serialize;

/// The machine, as far as figures depend on it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub memory_gib: u64,
    pub redis: String,
    pub kafka: String,
    pub day: String,
}

impl Machine {
    pub fn look() -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default();
        let jar = std::fs::read_dir(testkit::kafka::libs_folder()).ok().and_then(|mut files| {
            files.find_map(|file| {
                let name = file.ok()?.file_name().into_string().ok()?;
                Some(name.strip_prefix("kafka-clients-")?.strip_suffix(".jar")?.to_owned())
            })
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib >> 20,
            redis: said("redis-server", "--version").split_whitespace().nth(2).unwrap_or("v=?")[2..].to_owned(),
            kafka: jar.unwrap_or_else(|| "?".to_owned()),
            day: said("date", "+%F").trim().to_owned(),
        }
    }
}

fn said(program: &str, arg: &str) -> String {
    let output = testkit::process::output(Command::new(program).arg(arg));
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
