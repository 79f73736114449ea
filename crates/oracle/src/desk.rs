//! Services that ask before they work: one task gives the admissions of a process and takes its turns at Redis, once a second per service;
//! HTTP asks the task.

mod keeper;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use keeper::ServiceKeeper;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_core::ports::StoreError;

use crate::{
    admissions::{Admission, AdmissionId, AdmissionsView, Denial, Ended},
    service::{Registered, Registration, ServiceName, ServiceSeen},
};

/// Messages that wait for the task, at most; whoever has another one waits.
const QUEUE: usize = 1_024;
/// Looks at services under way at the same time, at most; others wait. Anybody may look, and calls are for those who register.
const MOST_LOOKS: usize = 4;

enum DeskMessage {
    Ask(ServiceName, oneshot::Sender<Admission>),
    End(ServiceName, AdmissionId, Option<u64>, oneshot::Sender<Ended>),
    States(oneshot::Sender<Vec<AdmissionsView>>),
    /// An instance of a service.
    Register(ServiceName, ServiceName, Option<Registration>, oneshot::Sender<Result<Registered, StoreError>>),
    Look(ServiceName, oneshot::Sender<Result<Option<ServiceSeen>, StoreError>>),
}

/// Where HTTP asks; clones ask the same task.
#[derive(Clone)]
pub struct ServiceDesk {
    inbox: mpsc::Sender<DeskMessage>,
    looks: Arc<Semaphore>,
}

impl ServiceDesk {
    pub async fn ask(&self, service: &ServiceName) -> Admission {
        let admission = self.tell(|reply| DeskMessage::Ask(service.clone(), reply)).await;
        // The process ends.
        admission.unwrap_or(Admission::Denied(Denial::NoLease, 1))
    }

    /// An admission has ended, after so many milliseconds of work where that is known.
    pub async fn end(&self, service: &ServiceName, id: AdmissionId, took_ms: Option<u64>) -> Ended {
        let ended = self.tell(|reply| DeskMessage::End(service.clone(), id, took_ms, reply)).await;
        ended.unwrap_or(Ended::Full)
    }

    /// The services that this process gives admissions to.
    pub async fn states(&self) -> Vec<AdmissionsView> {
        self.tell(DeskMessage::States).await.unwrap_or_default()
    }

    /// Registers or renews an instance of a service; without a registration, removes it.
    pub async fn register(
        &self,
        service: &ServiceName,
        instance: ServiceName,
        registration: Option<Registration>,
    ) -> Result<Registered, StoreError> {
        let message = |reply| DeskMessage::Register(service.clone(), instance, registration, reply);
        self.tell(message).await.unwrap_or_else(|| Err(ends()))
    }

    /// How a service stands over all instances of weir; `None` where none of its instances is registered.
    pub async fn look(&self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        let _one = self.looks.acquire().await.map_err(|_| ends())?;
        self.tell(|reply| DeskMessage::Look(service.clone(), reply)).await.unwrap_or_else(|| Err(ends()))
    }

    /// What the task replies; `None` where it has ended.
    async fn tell<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> DeskMessage) -> Option<T> {
        let (reply, replied) = oneshot::channel();
        self.inbox.send(message(reply)).await.ok()?;
        replied.await.ok()
    }
}

fn ends() -> StoreError {
    StoreError::Temporary("weir is stopping".to_owned())
}
