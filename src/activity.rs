//! Reports of active users over HTTP: `POST /v1/activity`. They touch this process alone; the task of pressure shares them.

use std::sync::Arc;

use serde::Serialize;
use weir_core::{
    basis::clocks::WrongClock,
    intent::dead_letter::DeadLetter,
    limit::pressure::{
        Pressure,
        activity::Minute,
        activity_report::{ActivityReport, ReportOutcome},
    },
    policy::Policy,
    ports::Clock,
};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    refresh::Refreshed,
};

use crate::metrics::Metrics;

pub struct ActivityReports {
    pub policy: Arc<Refreshed<Policy>>,
    /// Where users are noted; `None`: nobody can be active.
    pub pressure: Option<Arc<Pressure>>,
    pub clock: ComparedClock<SystemClock>,
    pub metrics: Arc<Metrics>,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Taken)]
pub struct ReportTaken {
    /// How many users of the list are active by it: all, or none where `at` is older than the window.
    #[schema(example = 2)]
    pub taken: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("the policy in force has no [pressure]: it is not counted who is active")]
    NoPressure,
    #[error("who is active is being read; report it again")]
    NotReadYet,
    #[error("{}: {}", .0.reason.as_str(), .0.message)]
    Invalid(DeadLetter),
    #[error(transparent)]
    Clock(#[from] WrongClock),
}

impl ActivityReports {
    /// Takes the report of a request's body: all of it, or nothing.
    pub fn take(&self, body: &[u8]) -> Result<ReportTaken, ReportError> {
        if self.policy.current().pressure.is_none() {
            return Err(ReportError::NoPressure);
        }
        let pressure = self.pressure.as_ref().ok_or(ReportError::NotReadYet)?;
        let now = self.clock.time_to_decide(&[])?;
        let ActivityReport { users, at } = ActivityReport::parse(body, now).map_err(ReportError::Invalid)?;
        let count = users.len();
        let outcome = pressure.note(users, Minute::from(at), Minute::from(now));
        self.metrics.activity_reported("http", outcome.as_str(), u64::try_from(count).unwrap_or(u64::MAX));
        match outcome {
            ReportOutcome::Noted => Ok(ReportTaken { taken: count }),
            ReportOutcome::Late => Ok(ReportTaken { taken: 0 }),
            ReportOutcome::NoPressure => Err(ReportError::NotReadYet),
        }
    }
}
