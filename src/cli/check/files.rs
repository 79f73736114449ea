//! What is in files, or in S3 in their place: settings, policy and segments.

use std::sync::Arc;

use weir_core::{basis::memory::LaneMemory, policy::Policy, segment::SegmentSet};
use weir_worker::refresh::RefreshSource;

use super::{
    CheckArgs,
    report::{CheckReport, Finding},
};
use crate::{
    cli::{assemble, time_zones},
    config::Settings,
    object_store::Location,
};

pub(super) fn time_zones(report: &mut CheckReport) {
    let in_use = time_zones::in_use();
    report.add(Finding::Ok, "time zones", in_use.to_string());
    if in_use.is_outdated() {
        let message =
            "the system's database is older than the one built in: update the package tzdata, and start weir again";
        report.add(Finding::Warning, "time zones", message);
    }
}

/// Settings that contradict each other, or have no effect. Returns whether clients of Kafka can be made by them.
pub(super) fn settings(settings: &Settings, report: &mut CheckReport) -> bool {
    let lanes = assemble::lanes_and_memory(settings);
    let memory = lanes.as_ref().map_or_else(|_| LaneMemory::default(), |(_, memory)| *memory);
    for message in assemble::kafka_without_effect(&settings.kafka) {
        report.add(Finding::Warning, "configuration", message);
    }
    let conflicts = assemble::kafka_conflicts(&settings.kafka, memory);
    let makes_clients = conflicts.is_empty();
    let checks = [assemble::fields(settings).err(), lanes.err(), assemble::redis(&settings.redis).err()];
    let errors = checks.into_iter().flatten().map(|error| error.to_string());
    for message in errors.chain(conflicts) {
        report.add(Finding::Invalid, "configuration", message);
    }
    makes_clients
}

/// Whether a source is not to be read, which is reported.
fn is_skipped(source: &Location, what: &'static str, args: &CheckArgs, report: &mut CheckReport) -> bool {
    let is_skipped = args.offline && matches!(source, Location::S3 { .. });
    if is_skipped {
        report.add(Finding::Skipped, what, format!("{source} is not read (--offline)"));
    }
    is_skipped
}

pub(super) async fn policy(settings: &Settings, args: &CheckArgs, report: &mut CheckReport) -> Option<Arc<Policy>> {
    let place = &settings.policy.source;
    if is_skipped(place, "policy", args, report) {
        return None;
    }
    read(assemble::policy_source(settings).await, place, |_| String::new(), report).await
}

pub(super) async fn segments(
    settings: &Settings,
    args: &CheckArgs,
    report: &mut CheckReport,
) -> Option<Arc<SegmentSet>> {
    let place = &settings.segments.source;
    if is_skipped(place, "segments", args, report) {
        return None;
    }
    let source = assemble::segment_source(settings).await;
    let users = |set: &SegmentSet| set.segments().iter().map(|segment| segment.members.len()).sum::<u64>();
    read(Ok(source), place, |set| format!(", {} users", users(set)), report).await
}

/// Reads a source and reports its version and size, or the error. An error that may pass by itself is the store's; any other
/// is in what the source holds.
async fn read<S: RefreshSource>(
    source: Result<S, S::Error>,
    place: &Location,
    size: impl FnOnce(&S::Value) -> String,
    report: &mut CheckReport,
) -> Option<Arc<S::Value>> {
    let read = match source {
        Ok(mut source) => source.load().await,
        Err(error) => Err(error),
    };
    match read {
        Ok(found) => {
            let described = found.as_ref().map(|value| format!(": version {}{}", S::version(value), size(value)));
            report.add(Finding::Ok, S::NAME, format!("{place}{}", described.unwrap_or_default()));
            found
        }
        Err(error) => {
            let finding = if S::is_temporary(&error) { Finding::Error } else { Finding::Invalid };
            report.add(finding, S::NAME, error.to_string());
            None
        }
    }
}

pub(super) fn names(policy: &Policy, set: &SegmentSet, report: &mut CheckReport) {
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
    for segment in set.segments().iter().filter(|segment| segment.members.is_empty()) {
        let message = format!("the segment {} has no users: was it built from an empty file?", segment.name);
        report.add(Finding::Warning, "segments", message);
    }
    for overlap in set.overlaps() {
        let (first, second) = (names[overlap.first], names[overlap.second]);
        let message = format!(
            "{} users are in both {first} and {second}: rebuild the set with each user in one segment",
            overlap.users
        );
        report.add(Finding::Invalid, "segments", message);
    }
}
