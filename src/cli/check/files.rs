//! What is in files, or in S3 in their place: settings, policy and segments.

use std::sync::Arc;

use weir_core::{policy::Policy, segment::SegmentSet};
use weir_worker::refresh::Source as _;

use super::{
    Reach,
    report::{Finding, Report},
};
use crate::{
    cli::{assemble, time_zones},
    config::{Settings, Source},
    policy_source::PolicySource,
    segments::SegmentSource,
};

/// Which time zones are in use.
pub(super) fn time_zones(report: &mut Report) {
    let in_use = time_zones::in_use();
    report.add(Finding::Ok, "time zones", in_use.to_string());
    if in_use.is_outdated() {
        let message =
            "the system's database is older than the one built in: update the package tzdata, and start weir again";
        report.add(Finding::Warning, "time zones", message);
    }
}

/// Settings that contradict each other.
pub(super) fn settings(settings: &Settings, report: &mut Report) {
    if let Err(error) = assemble::fields(settings) {
        report.add(Finding::Invalid, "configuration", error.to_string());
    }
    if let Err(error) = assemble::lanes_and_memory(settings) {
        report.add(Finding::Invalid, "configuration", error.to_string());
    }
    if let Err(error) = assemble::redis(&settings.redis) {
        report.add(Finding::Invalid, "configuration", error.to_string());
    }
}

/// Whether a source is not to be read, which is reported.
fn is_skipped(source: &Source, what: &'static str, reach: Reach, report: &mut Report) -> bool {
    match (source, reach) {
        (Source::File(_), _) | (Source::S3 { .. }, Reach::Everything) => false,
        (Source::S3 { .. }, Reach::Files) => {
            report.add(Finding::Skipped, what, format!("{source} is not read (--offline)"));
            true
        }
    }
}

/// How an error of a source counts: one that may be gone in a moment is the store's, any other is in what it holds.
fn finding<S: weir_worker::refresh::Source>(error: &S::Error) -> Finding {
    if S::is_temporary(error) { Finding::Error } else { Finding::Invalid }
}

pub(super) async fn policy(settings: &Settings, reach: Reach, report: &mut Report) -> Option<Arc<Policy>> {
    if is_skipped(&settings.policy.source, "policy", reach, report) {
        return None;
    }
    let object = assemble::object(&settings.policy.source, &settings.s3).await;
    let read = match PolicySource::new(object, assemble::bounds(&settings.redis)) {
        Ok(mut source) => source.load().await,
        Err(error) => Err(error),
    };
    match read {
        Ok(policy) => {
            let version = policy.as_ref().map_or("", |policy| policy.version.as_str());
            report.add(Finding::Ok, "policy", format!("{}: version {version}", settings.policy.source));
            policy
        }
        Err(error) => {
            report.add(finding::<PolicySource>(&error), "policy", error.to_string());
            None
        }
    }
}

pub(super) async fn segments(settings: &Settings, reach: Reach, report: &mut Report) -> Option<Arc<SegmentSet>> {
    if is_skipped(&settings.segments.source, "segments", reach, report) {
        return None;
    }
    let object = assemble::object(&settings.segments.source, &settings.s3).await;
    let prefix = settings.segments.user_id_prefix.as_deref().unwrap_or_default();
    match SegmentSource::new(object, prefix).load().await {
        Ok(set) => {
            let users: u64 = set.iter().flat_map(|set| set.segments()).map(|segment| segment.members.len()).sum();
            let version = set.as_ref().map_or("", |set| set.version());
            let message = format!("{}: version {version}, {users} users", settings.segments.source);
            report.add(Finding::Ok, "segments", message);
            set
        }
        Err(error) => {
            report.add(finding::<SegmentSource>(&error), "segments", error.to_string());
            None
        }
    }
}

pub(super) fn names(policy: &Policy, set: &SegmentSet, report: &mut Report) {
    let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
    for name in policy.unnamed(&names) {
        let message = format!(
            "the policy does not name the segment {name}: add [segments.{name}], or its users are under [default]"
        );
        report.add(Finding::Invalid, "policy", message);
    }
    for name in policy.absent(&names) {
        let message =
            format!("the policy names the segment {name}, which the set does not have: build it, or take it out");
        report.add(Finding::Warning, "policy", message);
    }
    for overlap in set.overlaps() {
        let (first, second) = (names[overlap.first], names[overlap.second]);
        let message =
            format!("{} users are in both {first} and {second}: build the set anew, each user in one", overlap.users);
        report.add(Finding::Invalid, "segments", message);
    }
}
