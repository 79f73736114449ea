//! What is reported of admissions.

use crate::{admissions::Denial, service::ServiceName};

/// What became of an admission, or of the wish for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionEvent {
    Admitted,
    Denied(Denial),
    /// It has ended because the service said so.
    Ended,
    TimedOut,
}

impl AdmissionEvent {
    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Denied(denial) => denial.as_str(),
            Self::Ended => "ended",
            Self::TimedOut => "timed_out",
        }
    }
}

/// Who is told what becomes of admissions: the metrics.
pub trait AdmissionObserver: Send + Sync {
    fn admissions(&self, service: &ServiceName, event: AdmissionEvent, count: u64);
    /// So many admissions of all services have not ended here.
    fn set_outstanding(&self, admissions: usize);
}
