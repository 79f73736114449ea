//! Where segments and policies come from: unreachable, broken, half written. Rows 21 and 22.

use testkit::s3::{Fault, S3};

use super::*;
use crate::support::http;

/// Waits until one more refresh of this source has failed; the version in force is the one before.
fn refused(trial: &mut Trial, worker: usize, source: &str, version: &str, what: &str) -> Result<()> {
    let label = format!("source=\"{source}\"");
    let failures = |worker: &Worker| metric(worker, "weir_refresh_failures_total", &label).unwrap_or(0.0);
    let before = failures(trial.worker(worker));
    trial.until_of(worker, &format!("{what} is refused"), |worker| failures(worker) > before)?;
    let version = format!("{label},version=\"{version}\"");
    ensure!(
        metric(trial.worker(worker), "weir_version_info", &version) == Some(1.0),
        "{what}: the last good one is gone"
    );
    let log = trial.worker(worker).log();
    ensure!(log.contains("refused; the last good one stays"), "{what} is not in the log");
    trial.comes_back()
}

/// S3 fails in every way; then objects differ from the manifest.
pub fn segments(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let s3 = S3::start()?;
    let bucket = s3.bucket();
    let mut trial = plain(ground, order, "s3")?;
    trial.scene.put_segments(bucket, "segments");
    let good: Value = serde_json::from_slice(&bucket.get("segments/manifest.json")?)?;
    trial.scene.extra = bucket.config();
    trial.scene.env = bucket.env().map(|(name, value)| (name, value.to_owned())).to_vec();
    let (mut trial, worker) = trial.at_work("only", &[])?;
    let mut kinds = 0;
    for _ in 0..order.times {
        for fault in [Fault::Forbidden, Fault::NotFound, Fault::SlowDown, Fault::CutBody, Fault::Stall] {
            s3.fail_next(1_000, fault);
            // Something new each time, so that there is a body to be cut.
            kinds += 1;
            bucket.put("segments/manifest.json", format!("{good}{}", " ".repeat(kinds)))?;
            refused(&mut trial, worker, "segments", "test-set", &format!("{fault:?}"))?;
            s3.fail_next(0, fault);
        }
        for (what, object, says) in broken(&good, &trial)? {
            if let Some(bytes) = object {
                bucket.put("segments/broken.roaring", bytes)?;
            }
            let mut bad = good.clone();
            bad["version"] = json!("bad");
            for (field, value) in says.as_object().context("fields")? {
                bad["segments"][0][field] = value.clone();
            }
            bucket.put("segments/manifest.json", bad.to_string())?;
            refused(&mut trial, worker, "segments", "test-set", what)?;
            kinds += 1;
        }
    }
    let mut next = good;
    next["version"] = json!("next");
    bucket.put("segments/manifest.json", next.to_string())?;
    http::wait_version(trial.worker(worker), "segments", "next");
    trial.finish_noting(order.times, format!("{kinds} rejected; the next valid set is applied"))
}

/// The defect, the object, and its manifest entry.
type Broken = (&'static str, Option<Vec<u8>>, Value);

fn broken(good: &Value, trial: &Trial) -> Result<Vec<Broken>> {
    let name = good["segments"][0]["object"].as_str().context("no object")?;
    let bytes = std::fs::read(trial.scene.path("segments").join(name))?;
    let says = |bytes: &[u8]| json!({"object": "broken.roaring", "bytes": bytes.len(), "sha256": sha256(bytes)});
    let half = bytes[..bytes.len() / 2].to_vec();
    // The portable format of 64-bit sets begins with how many 32-bit sets follow.
    let wide = [&1_u64.to_le_bytes()[..], &0_u32.to_le_bytes(), &bytes].concat();
    let (mut short, mut huge, mut other) = (says(&bytes), says(&bytes), says(&bytes));
    short["bytes"] = json!(bytes.len() + 1);
    huge["bytes"] = json!(1_u64 << 40);
    other["sha256"] = json!("00".repeat(32));
    let mut few = says(&bytes);
    few["cardinality"] = json!(7);
    Ok(vec![
        ("a truncated bitmap", Some(half.clone()), says(&half)),
        ("an empty bitmap", Some(Vec::new()), says(&[])),
        ("a bitmap of another dialect", Some(wide.clone()), says(&wide)),
        ("a bitmap shorter than declared", Some(bytes), short),
        ("a declared size of 1 TiB", None, huge),
        ("a wrong checksum", None, other),
        ("a wrong cardinality", None, few),
    ])
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

pub fn policy(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "policy")?.at_work("only", &[])?;
    let bad = [
        ("bad syntax", format!("{POLICY}\n[[bypass")),
        ("a window beyond the history", POLICY.replace("window = \"7d\"", "window = \"90d\"")),
        ("no default", POLICY.replace("[default]", "[segments.default]")),
        ("a segment without caps", format!("{POLICY}\n[segments.empty]\n")),
        ("an unknown key", POLICY.replace("limit = 2,", "limits = 2,")),
        ("nothing", String::new()),
    ];
    for _ in 0..order.times {
        for (what, text) in &bad {
            trial.scene.write_policy(text);
            refused(&mut trial, worker, "policy", "test-1", what)?;
        }
    }
    // A segment that the set does not have is no reason to refuse: the set may be about to come.
    let unknown = format!("{}\n[segments.unknown]\ncaps = \"unlimited\"\n", POLICY.replace("test-1", "test-2"));
    trial.scene.write_policy(&unknown);
    http::wait_version(trial.worker(worker), "policy", "test-2");
    trial.note(format!("{} kinds rejected; one that names an unknown segment is applied", bad.len()));
    trial.finish(order.times)
}
