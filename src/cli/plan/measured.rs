//! The constants: what `cargo xtask bench --output json` wrote to benches/measured.json.

use serde::Deserialize;
use weir_core::plan::{BadCurve, Curve, Measured};

/// The file, as it is in the repository.
pub const FILE: &str = "benches/measured.json";
const TEXT: &str = include_str!("../../../benches/measured.json");
/// What `cargo bench --bench rebuild` printed, in the same form.
const REBUILD: &str = include_str!("../../../benches/measured-rebuild.json");

/// What the plan reads of the file; the bench writes more.
#[derive(Debug, Deserialize)]
struct Report {
    /// What a reader of the figures should know besides.
    note: Option<String>,
    machine: Machine,
    figures: Vec<Figure>,
    sizes: Sizes,
    store: Store,
}

/// What the constants were measured on.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the bench says what each is")]
pub struct Machine {
    pub cpu: String,
    pub cores: u32,
    pub load: String,
    pub weir: String,
    pub kafka: String,
    pub redis: String,
    #[serde(skip)]
    pub note: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    name: String,
    weir: f64,
}

#[derive(Debug, Deserialize)]
struct Restored {
    rebuild: Rebuild,
}

#[derive(Debug, Deserialize)]
struct Rebuild {
    cpu_us: f64,
}

#[derive(Debug, Deserialize)]
struct Sizes {
    approved_headers_bytes: f64,
    envelope_bytes: f64,
}

#[derive(Debug, Deserialize)]
struct Store {
    users: u32,
    by_sends: Vec<BySends>,
    by_caps: Vec<ByCaps>,
    resident_ratio: f64,
    empty_node_bytes: f64,
    net_in_bytes: f64,
    net_out_bytes: f64,
}

#[derive(Debug, Deserialize)]
struct BySends {
    sends: u32,
    user_bytes: f64,
    cpu_us: f64,
}

#[derive(Debug, Deserialize)]
struct ByCaps {
    caps: u32,
    cpu_us: f64,
}

/// Why the file gives no constants.
#[derive(Debug, thiserror::Error)]
pub enum BadMeasured {
    /// It is not what the bench writes.
    #[error("{FILE} is not what `cargo xtask bench --output json` writes: {0}")]
    Shape(#[from] serde_json::Error),
    /// A figure is not there.
    #[error("{FILE} has no figure {0:?}")]
    Missing(&'static str),
    /// A number cannot be.
    #[error("{FILE}: {name} is {value}, and should be above 0")]
    Number {
        /// Where it stands.
        name: &'static str,
        /// What stands there.
        value: f64,
    },
    /// A table has no use.
    #[error("{FILE}: {0}")]
    Curve(#[from] BadCurve),
}

/// The constants of this build, and what they were measured on.
///
/// # Errors
/// The file is wrong; a test keeps it right.
pub fn measured() -> Result<(Measured, Machine), BadMeasured> {
    read(TEXT)
}

pub(super) fn read(text: &str) -> Result<(Measured, Machine), BadMeasured> {
    let Report { note, mut machine, figures, sizes, store } = serde_json::from_str(text)?;
    machine.note = note;
    let figure = |name| figures.iter().find(|figure| figure.name == name).ok_or(BadMeasured::Missing(name));
    let cpu = figure("worker CPU, us an intent")?;
    let Restored { rebuild } = serde_json::from_str(REBUILD)?;
    let by_sends = store.by_sends.iter().map(|at| (f64::from(at.sends), at));
    let measured = Measured {
        user_bytes: Curve::new(by_sends.clone().map(|(sends, at)| (sends, at.user_bytes)))?,
        redis_us_by_sends: Curve::new(by_sends.map(|(sends, at)| (sends, at.cpu_us)))?,
        redis_us_by_caps: Curve::new(store.by_caps.iter().map(|at| (f64::from(at.caps), at.cpu_us)))?,
        resident_ratio: positive("store.resident_ratio", store.resident_ratio)?,
        empty_node_bytes: positive("store.empty_node_bytes", store.empty_node_bytes)?,
        redis_in_bytes: positive("store.net_in_bytes", store.net_in_bytes)?,
        redis_out_bytes: positive("store.net_out_bytes", store.net_out_bytes)?,
        lane_per_s: positive("intents/s", figure("intents/s")?.weir)?,
        worker_us: positive("worker CPU", cpu.weir)?,
        worker_bytes: positive("resident memory", figure("resident memory at most, MiB")?.weir)? * 1_048_576.0,
        rebuild_us: positive("rebuild.cpu_us", rebuild.cpu_us)?,
        headers_bytes: positive("sizes.approved_headers_bytes", sizes.approved_headers_bytes)?,
        envelope_bytes: positive("sizes.envelope_bytes", sizes.envelope_bytes)?,
    };
    // Below some thousand users, what a server needs by itself would count as theirs.
    positive("store.users", f64::from(store.users) - 999.0)?;
    Ok((measured, machine))
}

fn positive(name: &'static str, value: f64) -> Result<f64, BadMeasured> {
    (value.is_finite() && value > 0.0).then_some(value).ok_or(BadMeasured::Number { name, value })
}
