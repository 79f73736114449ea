//! How one instance's share of a service stands.

use super::share::Sharing;
use crate::service::{ServiceName, Total};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionsView {
    /// The service.
    pub service: ServiceName,
    /// What is registered, as of the last turn.
    pub total: Total,
    /// The share in force here, per second.
    pub per_s: u64,
    /// The share of concurrency in force here.
    pub concurrency: u64,
    /// Admissions given here that have not ended.
    pub outstanding: u64,
    /// Why Redis did not answer the last turn; `None`: it did.
    pub trouble: Option<String>,
}

impl Sharing {
    pub(super) fn view(&self, service: &ServiceName, now_ms: u64) -> AdmissionsView {
        let (per_s, concurrency) = self.in_force(now_ms);
        AdmissionsView {
            service: service.clone(),
            total: self.total(),
            per_s,
            concurrency,
            outstanding: self.outstanding(),
            trouble: self.trouble().map(str::to_owned),
        }
    }
}
