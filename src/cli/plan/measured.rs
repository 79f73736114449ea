//! The measured constants of `weir plan`: what `cargo xtask bench --output json` and `cargo bench --bench rebuild` wrote.

use anyhow::Context as _;
use serde_json::Value;

const BENCH: &str = include_str!("../../../benches/measured.json");
const REBUILD: &str = include_str!("../../../benches/measured-rebuild.json");

/// A measured dependency: ascending points, and straight lines between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// The curve through at least two points `(at, value)`. A point below the one before it, which only noise can
    /// explain, is raised to it.
    pub fn new(mut points: Vec<(f64, f64)>) -> anyhow::Result<Self> {
        let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        anyhow::ensure!(points.len() > 1 && ascending, "a curve needs two points or more, at ascending places");
        for index in 1..points.len() {
            points[index].1 = points[index].1.max(points[index - 1].1);
        }
        Ok(Self(points))
    }

    /// The value there: between two points on the line through them, before the first point the first value, after the
    /// last point on the line through the last two.
    pub fn at(&self, place: f64) -> f64 {
        let above = self.0.iter().position(|(at, _)| *at >= place).unwrap_or(self.0.len());
        let high = above.clamp(1, self.0.len() - 1);
        let (low, high) = (self.0[high - 1], self.0[high]);
        if place <= low.0 { low.1 } else { low.1 + (high.1 - low.1) * (place - low.0) / (high.0 - low.0) }
    }
}

/// The constants. All are above 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Bytes of Redis memory per user, by sends in the user's history.
    pub user_bytes: Curve,
    /// CPU of Redis per decision in microseconds, by sends in the user's history, with two caps.
    pub redis_us_by_sends: Curve,
    /// The same for eight sends, by the number of caps.
    pub redis_us_by_caps: Curve,
    /// Resident memory of Redis divided by allocated memory.
    pub resident_ratio: f64,
    /// Memory of a Redis server without keys, in bytes.
    pub empty_node_bytes: f64,
    /// Intents per second of one lane.
    pub lane_per_s: f64,
    /// CPU of the worker per intent, in microseconds.
    pub worker_us: f64,
    /// CPU of `weir rebuild` per send, in microseconds.
    pub rebuild_us: f64,
    /// Bytes that an approved record has more than its intent.
    pub headers_bytes: f64,
    /// Bytes that a suppressed record has more than its intent.
    pub envelope_bytes: f64,
}

/// The constants of this build.
pub fn measured() -> anyhow::Result<Measured> {
    let (bench, rebuild): (Value, Value) = (serde_json::from_str(BENCH)?, serde_json::from_str(REBUILD)?);
    let scalar = |pointer| positive(bench.pointer(pointer), pointer);
    let figure = |name: &str| {
        let figures = bench["figures"].as_array();
        let found = figures.and_then(|figures| figures.iter().find(|figure| figure["name"] == name));
        positive(found.map(|figure| &figure["weir"]), name)
    };
    let curve = |table: &str, at: &str, value: &str| {
        let points = bench["store"][table].as_array().with_context(|| format!("no table {table}"))?;
        let point = |point: &Value| Ok((positive(point.get(at), at)?, positive(point.get(value), value)?));
        Curve::new(points.iter().map(point).collect::<anyhow::Result<_>>()?).context(table.to_owned())
    };
    Ok(Measured {
        user_bytes: curve("by_sends", "sends", "user_bytes")?,
        redis_us_by_sends: curve("by_sends", "sends", "cpu_us")?,
        redis_us_by_caps: curve("by_caps", "caps", "cpu_us")?,
        resident_ratio: scalar("/store/resident_ratio")?,
        empty_node_bytes: scalar("/store/empty_node_bytes")?,
        lane_per_s: figure("intents/s")?,
        worker_us: figure("worker CPU, us per intent")?,
        rebuild_us: positive(rebuild.pointer("/rebuild/cpu_us"), "/rebuild/cpu_us")?,
        headers_bytes: scalar("/sizes/approved_headers_bytes")?,
        envelope_bytes: scalar("/sizes/envelope_bytes")?,
    })
}

fn positive(value: Option<&Value>, name: &str) -> anyhow::Result<f64> {
    let number = value.and_then(Value::as_f64).filter(|number| *number > 0.0);
    number.with_context(|| format!("{name} must be a number above 0"))
}
