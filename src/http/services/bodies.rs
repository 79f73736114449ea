//! What `/v1/services` takes and answers.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::ToSchema;
use weir_oracle::service::{Registration, ServiceName, ServiceSeen};

use crate::{
    http::problem::Problem,
    limits::{LimitView, ServiceShare},
};

/// The most that an instance registers, per second and of concurrency.
const MAX_CAPACITY: u64 = 1_000_000;
/// The longest timeout, interval and processing time, in milliseconds: an hour.
const MAX_MS: u64 = 3_600_000;
/// The longest way of a message, in milliseconds.
const MAX_NETWORK_MS: u64 = 60_000;
/// The shortest interval of renewals, in milliseconds.
const MIN_INTERVAL_MS: u64 = 1_000;

/// What an instance of a service can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"capacity_per_s": 500, "concurrency": 200, "timeout_ms": 10_000}))]
pub struct ServiceInstance {
    /// Admissions per second.
    #[schema(minimum = 1, maximum = 1_000_000)]
    capacity_per_s: u64,
    /// Admissions that have not ended.
    #[schema(minimum = 1, maximum = 1_000_000)]
    concurrency: u64,
    /// An admission that is not ended is over after so many milliseconds. The longest of all instances is in force.
    #[schema(minimum = 1, maximum = 3_600_000)]
    timeout_ms: u64,
    /// How long a message takes one way, in milliseconds.
    #[serde(default = "usual_network_ms")]
    #[schema(maximum = 60_000, default = 50)]
    network_ms: u64,
    /// How often it renews, in milliseconds.
    #[serde(default = "usual_interval_ms")]
    #[schema(minimum = 1_000, maximum = 3_600_000, default = 10_000)]
    interval_ms: u64,
}

const fn usual_network_ms() -> u64 {
    50
}

const fn usual_interval_ms() -> u64 {
    10_000
}

/// A request for an admission: an object without members. As JSON, which no page in a browser can send here unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub struct AdmissionRequest {}

/// How an admission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"took_ms": 12, "outcome": "ok"}))]
pub struct AdmissionEnd {
    /// How long the work took, in milliseconds.
    #[schema(maximum = 3_600_000)]
    took_ms: Option<u64>,
    /// How it went; times count in the mean for `ok`, which is the default.
    #[serde(default)]
    outcome: AdmissionOutcome,
}

/// How the work of an admission went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionOutcome {
    /// It is done.
    #[default]
    Ok,
    /// It failed, and may succeed later.
    Temporary,
    /// It failed, and will again.
    Permanent,
}

/// All instances of a service together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct InstanceRegistered {
    /// How many they are.
    pub instances: u64,
    /// Admissions per second.
    pub capacity_per_s: u64,
    /// Admissions that have not ended.
    pub concurrency: u64,
}

/// What became of an instance that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct InstanceRemoved {
    /// Whether it was registered.
    pub removed: bool,
}

/// An admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"id": "5f0c6a1e.7", "timeout_ms": 10_000}))]
pub struct AdmissionGiven {
    /// Its id, by which it is ended.
    pub id: String,
    /// It is over after so many milliseconds.
    pub timeout_ms: u64,
}

/// What became of an admission that was to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct EndedAdmission {
    /// `now`: it has ended. `handed_on`: another instance gave it, and frees it within about two seconds. `before`: it had ended, or its time
    /// was over.
    #[schema(value_type = String, pattern = "^(now|handed_on|before)$")]
    pub ended: &'static str,
}

/// The services that an instance of weir gives admissions to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServiceList {
    /// By name.
    pub services: Vec<ServiceShare>,
}

/// How a service stands, over all instances of weir.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ServiceView {
    /// `limit`: admissions per second, of all instances. `leased`: the shares of the rate that are in force or were within the last
    /// second.
    #[serde(flatten)]
    pub shared: LimitView,
    /// Its live instances, by name.
    pub instances: Vec<InstanceView>,
    /// Admissions that have not ended, of all instances.
    pub concurrency: u64,
    /// The shares of the concurrency that are in force, and admissions beyond them that have not ended.
    pub given_concurrency: u64,
    /// The mean time of its admissions, in milliseconds; null before one has ended with `took_ms`.
    pub mean_took_ms: Option<f64>,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InstanceView {
    pub instance: String,
    pub capacity_per_s: u64,
    pub concurrency: u64,
    pub timeout_ms: u64,
    pub network_ms: u64,
    /// It is removed after so many milliseconds, unless it renews.
    pub lives_for_ms: u64,
}

/// The name of a service or an instance in a path.
pub(super) fn service_name(text: &str) -> Result<ServiceName, Problem> {
    let detail = "a name of a service or instance has 1 to 64 ASCII letters, digits, `.`, `_` and `-`";
    ServiceName::new(text).ok_or_else(|| Problem::bad_request("service_name", detail))
}

impl ServiceInstance {
    pub(super) fn parse(body: &[u8]) -> Result<Registration, Problem> {
        let Self { capacity_per_s, concurrency, timeout_ms, network_ms, interval_ms } = parse(body)?;
        for (field, value, least, most) in [
            ("capacity_per_s", capacity_per_s, 1, MAX_CAPACITY),
            ("concurrency", concurrency, 1, MAX_CAPACITY),
            ("timeout_ms", timeout_ms, 1, MAX_MS),
            ("network_ms", network_ms, 0, MAX_NETWORK_MS),
            ("interval_ms", interval_ms, MIN_INTERVAL_MS, MAX_MS),
        ] {
            in_range(field, value, least, most)?;
        }
        Ok(Registration { capacity_per_s, concurrency, timeout_ms, network_ms, interval_ms })
    }
}

impl AdmissionEnd {
    /// The processing time in a body that counts; a body may be empty.
    pub(super) fn parse(body: &[u8]) -> Result<Option<u64>, Problem> {
        if body.is_empty() {
            return Ok(None);
        }
        let Self { took_ms, outcome } = parse(body)?;
        in_range("took_ms", took_ms.unwrap_or(0), 0, MAX_MS)?;
        Ok(took_ms.filter(|_| outcome == AdmissionOutcome::Ok))
    }
}

fn in_range(field: &str, value: u64, least: u64, most: u64) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Problem::bad_request("wrong_type", format!("{field} is {value}; it may be {least} to {most}")))
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.is_empty() {
        return Err(Problem::bad_request("empty", "the body is empty; it has to be a JSON object"));
    }
    let text = std::str::from_utf8(body).map_err(|_| Problem::bad_request("not_utf8", "the body is not UTF-8"))?;
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("the body: {error}");
        let reason = match error.is_data() {
            true if detail.contains("missing field") => "missing_field",
            true => "wrong_type",
            false => "not_json",
        };
        Problem::bad_request(reason, detail)
    })
}

impl ServiceView {
    pub fn new(service: &ServiceName, seen: ServiceSeen) -> Self {
        let ServiceSeen { instances, total, given, members, processing_us, now } = seen;
        let instances = instances.into_iter().map(|(instance, one)| InstanceView {
            instance,
            capacity_per_s: one.capacity_per_s,
            concurrency: one.concurrency,
            timeout_ms: one.timeout_ms,
            network_ms: one.network_ms,
            lives_for_ms: u64::try_from(one.ends.millis() - now.millis()).unwrap_or(0),
        });
        let shared = LimitView {
            left: Some(total.per_s.saturating_sub(given.0)),
            leased: Some(given.0),
            members: Some(members),
            ..LimitView::of_service(&service.to_string(), total.per_s)
        };
        Self {
            shared,
            instances: instances.collect(),
            concurrency: total.concurrency,
            given_concurrency: given.1,
            mean_took_ms: (processing_us > 0).then_some(processing_us as f64 / 1_000.0),
        }
    }
}
