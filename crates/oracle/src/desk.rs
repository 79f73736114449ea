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
    admissions::{AdmissionsView, Denial, Ended},
    service::{Holder, Registered, Registration, ServiceName, ServiceSeen},
};

/// Messages that wait for the task, at most; whoever has another one waits.
const QUEUE: usize = 1_024;
/// Looks at services under way at the same time, at most; others wait. Anybody may look, and calls are for those who register.
const MOST_LOOKS: usize = 4;

enum DeskMessage {
    Ask(ServiceName, oneshot::Sender<Admission>),
    End(ServiceName, AdmissionId, Option<u64>, oneshot::Sender<Ended>),
    Call(ServiceName, DeskCall, oneshot::Sender<Result<DeskAnswer, StoreError>>),
    States(oneshot::Sender<Vec<AdmissionsView>>),
}

/// What Redis is asked for HTTP.
enum DeskCall {
    Register(ServiceName, Registration),
    Deregister(ServiceName),
    Look,
}

/// What Redis answers.
enum DeskAnswer {
    Registered(Registered),
    Removed(bool),
    Seen(Option<ServiceSeen>),
}

/// What a service is answered that asks for an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may work.
    Given {
        id: AdmissionId,
        /// It is over after so many milliseconds.
        timeout_ms: u64,
    },
    /// Not now: why, and when to ask again, in seconds.
    Denied(Denial, u64),
    /// No live instance of the service is registered; when to ask again, in seconds.
    NoInstances(u64),
}

/// Names an admission over all instances: `<holder>.<number>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionId {
    holder: Holder,
    number: u64,
}

impl AdmissionId {
    /// The longest holder, in bytes.
    const MAX_HOLDER_BYTES: usize = 64;

    pub fn parse(text: &str) -> Option<Self> {
        let (holder, number) = text.split_once('.')?;
        let is_holder = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = (1..=Self::MAX_HOLDER_BYTES).contains(&holder.len()) && holder.bytes().all(is_holder);
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { holder: is_name.then(|| holder.into())?, number: number.parse().ok().filter(|_| is_number)? })
    }
}

impl std::fmt::Display for AdmissionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.holder, self.number)
    }
}

/// Where HTTP asks; clones ask the same task.
#[derive(Clone)]
pub struct ServiceDesk {
    inbox: mpsc::Sender<DeskMessage>,
    looks: Arc<Semaphore>,
}

impl ServiceDesk {
    fn new(inbox: mpsc::Sender<DeskMessage>) -> Self {
        Self { inbox, looks: Arc::new(Semaphore::new(MOST_LOOKS)) }
    }

    pub async fn ask(&self, service: &ServiceName) -> Admission {
        let (reply, admission) = oneshot::channel();
        self.send(DeskMessage::Ask(service.clone(), reply)).await;
        // The process ends.
        admission.await.unwrap_or(Admission::Denied(Denial::NoLease, 1))
    }

    /// An admission has ended, after so many milliseconds of work where that is known.
    pub async fn end(&self, service: &ServiceName, id: AdmissionId, took_ms: Option<u64>) -> Ended {
        let (reply, ended) = oneshot::channel();
        self.send(DeskMessage::End(service.clone(), id, took_ms, reply)).await;
        ended.await.unwrap_or(Ended::Full)
    }

    /// Registers or renews an instance of a service.
    pub async fn register(
        &self,
        service: &ServiceName,
        instance: ServiceName,
        registration: Registration,
    ) -> Result<Registered, StoreError> {
        match self.call(service, DeskCall::Register(instance, registration)).await? {
            DeskAnswer::Registered(registered) => Ok(registered),
            DeskAnswer::Removed(_) | DeskAnswer::Seen(_) => Err(ends()),
        }
    }

    /// Removes an instance of a service; gives whether it was registered.
    pub async fn deregister(&self, service: &ServiceName, instance: ServiceName) -> Result<bool, StoreError> {
        match self.call(service, DeskCall::Deregister(instance)).await? {
            DeskAnswer::Removed(was_registered) => Ok(was_registered),
            DeskAnswer::Registered(_) | DeskAnswer::Seen(_) => Err(ends()),
        }
    }

    /// How a service stands over all instances of weir; `None` where none of its instances is registered.
    pub async fn look(&self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        let _one = self.looks.acquire().await.map_err(|_| ends())?;
        match self.call(service, DeskCall::Look).await? {
            DeskAnswer::Seen(seen) => Ok(seen),
            DeskAnswer::Registered(_) | DeskAnswer::Removed(_) => Err(ends()),
        }
    }

    /// The services that this process gives admissions to.
    pub async fn states(&self) -> Vec<AdmissionsView> {
        let (reply, states) = oneshot::channel();
        self.send(DeskMessage::States(reply)).await;
        states.await.unwrap_or_default()
    }

    async fn call(&self, service: &ServiceName, call: DeskCall) -> Result<DeskAnswer, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(DeskMessage::Call(service.clone(), call, reply)).await;
        answer.await.unwrap_or_else(|_| Err(ends()))
    }

    /// Where the task has ended, the reply is dropped with the message.
    async fn send(&self, message: DeskMessage) {
        let _ = self.inbox.send(message).await;
    }
}

fn ends() -> StoreError {
    StoreError::Temporary("weir is stopping".to_owned())
}
