//! The task that gives the admissions of a process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};
use weir_core::{
    basis::time::millis,
    limit::share::{Clients, answer_within},
    ports::{Clock, StoreError},
};

use super::{DeskMessage, MOST_LOOKS, QUEUE, ServiceDesk};
use crate::{
    admissions::{Admission, AdmissionId, Admissions, Denial, Ended, no_instances_retry_s},
    observer::{AdmissionEvent, AdmissionObserver},
    service::{End, ServiceName, Services, ShareReply},
};

/// A call that has no answer by then has failed: a turn must be over before the lease ends.
const CALL_WITHIN: Duration = Duration::from_secs(1);
/// Calls for HTTP under way at the same time, at most; beyond that they fail at once.
const MOST_CALLS: usize = 64;
/// Who waits for the first turn at a service, at most.
const MOST_WAITING: usize = 1_024;
/// How often it looks what has timed out, at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

enum Called {
    Turned(ServiceName, Result<ShareReply, StoreError>),
    /// For HTTP; what is registered of a service has changed by it.
    Answered(Option<ServiceName>),
}

/// Gives admissions from this process's shares, and takes its turns.
pub struct ServiceKeeper<S, C> {
    admissions: Admissions,
    clients: Clients<S>,
    clock: C,
    observer: Arc<dyn AdmissionObserver>,
    inbox: mpsc::Receiver<DeskMessage>,
    /// Who waits for the first turn at a service.
    waiting: BTreeMap<ServiceName, Vec<oneshot::Sender<Admission>>>,
    /// The client comes back without an answer, too: it knows who did not answer, and asks others first.
    calls: JoinSet<(Option<S>, Called)>,
    calls_for_http: usize,
}

impl<S, C> ServiceKeeper<S, C>
where
    S: Services + 'static,
    C: Clock + Clone + 'static,
{
    /// The task, to be run, and where it is asked. `connect` makes what calls Redis, for one call at a time, as this holder: a name of
    /// lowercase letters and digits that no other process has or had.
    pub fn new(
        connect: impl Fn() -> S + Send + 'static,
        holder: &str,
        clock: C,
        observer: Arc<dyn AdmissionObserver>,
    ) -> (Self, ServiceDesk) {
        let (sender, inbox) = mpsc::channel(QUEUE);
        let keeper = Self {
            admissions: Admissions::new(holder, millis(clock.passed())),
            clients: Clients::new(connect),
            clock,
            observer,
            inbox,
            waiting: BTreeMap::new(),
            calls: JoinSet::new(),
            calls_for_http: 0,
        };
        (keeper, ServiceDesk { inbox: sender, looks: Arc::new(Semaphore::new(MOST_LOOKS)) })
    }

    /// Works until nobody is left to ask. Its shares end with their leases.
    pub async fn run(mut self) {
        loop {
            self.take_turns();
            self.report();
            let now_ms = self.now_ms();
            let next_ms = self.admissions.next_turn_ms().map(|at_ms| at_ms.saturating_sub(now_ms));
            let wait = next_ms.map_or(LOOK_EVERY, Duration::from_millis).min(LOOK_EVERY);
            tokio::select! {
                biased;
                Some(called) = self.calls.join_next() => {
                    if let Ok((client, called)) = called {
                        client.into_iter().for_each(|client| self.clients.put_back(client));
                        self.called(called);
                    }
                }
                message = self.inbox.recv() => match message {
                    Some(message) => self.asked(message),
                    None => return,
                },
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    fn now_ms(&self) -> u64 {
        millis(self.clock.passed())
    }

    fn asked(&mut self, message: DeskMessage) {
        match message {
            DeskMessage::Ask(service, reply) => self.ask(service, reply),
            DeskMessage::End(service, AdmissionId { holder, number }, took_ms, reply) => {
                let ended = self.admissions.end(&service, &holder, End { number, took_ms }, self.now_ms());
                if ended == Ended::Now {
                    self.observer.admissions(&service, AdmissionEvent::Ended, 1);
                }
                let _ = reply.send(ended);
            }
            DeskMessage::States(reply) => {
                let _ = reply.send(self.admissions.look(self.now_ms()));
            }
            DeskMessage::Register(service, instance, registration, reply) => {
                let changes = Some(service.clone());
                self.call(changes, reply, |mut services, clock| async move {
                    let registering = services.register(&service, &instance, registration.as_ref());
                    let registered = answer_within(&clock, CALL_WITHIN, registering).await;
                    (services, registered)
                });
            }
            DeskMessage::Look(service, reply) => self.call(None, reply, |mut services, clock| async move {
                let seen = answer_within(&clock, CALL_WITHIN, services.look(&service)).await;
                (services, seen)
            }),
        }
    }

    fn ask(&mut self, service: ServiceName, reply: oneshot::Sender<Admission>) {
        // A client that has closed its connection gets no admission.
        if reply.is_closed() {
            return;
        }
        let now_ms = self.now_ms();
        let admission = match self.admissions.ask(&service, now_ms, fastrand::u32(..)) {
            Some(admission) => admission,
            None => {
                let waiting: usize = self.waiting.values().map(Vec::len).sum();
                if waiting >= MOST_WAITING || !self.admissions.begin(&service, now_ms) {
                    // Not counted: its name may be any.
                    let _ = reply.send(Admission::Denied(Denial::Full, 1));
                    return;
                }
                if self.admissions.is_turning(&service, now_ms) {
                    self.waiting.entry(service).or_default().push(reply);
                    return;
                }
                Admission::Denied(Denial::NoLease, 1)
            }
        };
        let event = match admission {
            Admission::Given { .. } => Some(AdmissionEvent::Admitted),
            Admission::Denied(denial, _) => Some(AdmissionEvent::Denied(denial)),
            Admission::NoInstances(_) => None,
        };
        match reply.send(admission) {
            Ok(()) => event.into_iter().for_each(|event| self.observer.admissions(&service, event, 1)),
            // The client has closed its connection meanwhile.
            Err(Admission::Given { id: AdmissionId { holder, number }, .. }) => {
                self.admissions.end(&service, &holder, End { number, took_ms: None }, now_ms);
            }
            Err(Admission::Denied(..) | Admission::NoInstances(_)) => {}
        }
    }

    fn take_turns(&mut self) {
        for (service, number, turn) in self.admissions.due_turns(self.now_ms()) {
            let mut services = self.clients.take();
            let (clock, of) = (self.clock.clone(), service.clone());
            let call = async move {
                let turned = answer_within(&clock, CALL_WITHIN, services.turn(&of, number, &turn)).await;
                (services, turned)
            };
            self.calls.spawn(async move {
                let (client, turned) = caught(call).await;
                (client, Called::Turned(service, turned))
            });
        }
    }

    /// Calls Redis for HTTP, unless too many calls are under way. `changes`: what is registered of a service is another then.
    fn call<T, F>(
        &mut self,
        changes: Option<ServiceName>,
        reply: oneshot::Sender<Result<T, StoreError>>,
        call: impl FnOnce(S, C) -> F,
    ) where
        T: Send + 'static,
        F: Future<Output = (S, Result<T, StoreError>)> + Send + 'static,
    {
        if self.calls_for_http >= MOST_CALLS {
            let error = StoreError::Temporary(format!("{MOST_CALLS} calls about services are under way"));
            let _ = reply.send(Err(error));
            return;
        }
        self.calls_for_http += 1;
        let call = call(self.clients.take(), self.clock.clone());
        self.calls.spawn(async move {
            let (client, answer) = caught(call).await;
            let changed = changes.filter(|_| answer.is_ok());
            let _ = reply.send(answer);
            (client, Called::Answered(changed))
        });
    }

    fn called(&mut self, called: Called) {
        match called {
            Called::Turned(service, turned) => self.turned(&service, turned),
            Called::Answered(changed) => {
                self.calls_for_http -= 1;
                // It comes into force soon, where admissions are given here.
                changed.iter().for_each(|service| self.admissions.hasten(service));
            }
        }
    }

    fn turned(&mut self, service: &ServiceName, turned: Result<ShareReply, StoreError>) {
        let now_ms = self.now_ms();
        let waiting = self.waiting.remove(service).unwrap_or_default();
        let ended = match turned {
            Ok(reply) => {
                if self.admissions.is_silent(service) {
                    tracing::info!(%service, "Redis gives a share of the service again");
                }
                self.admissions.turned(service, &reply, now_ms)
            }
            Err(error) => {
                if !self.admissions.is_silent(service) {
                    tracing::warn!(%service, "Redis gives no share of the service: {error}; admissions end with the lease");
                }
                self.admissions.not_turned(service, &error.to_string(), now_ms);
                // The next turn is due, and may have no answer either.
                for reply in waiting {
                    if reply.send(Admission::Denied(Denial::NoLease, 1)).is_ok() {
                        self.observer.admissions(service, AdmissionEvent::Denied(Denial::NoLease), 1);
                    }
                }
                return;
            }
        };
        if let Some(ended @ 1..) = ended {
            self.observer.admissions(service, AdmissionEvent::Ended, ended);
        }
        for reply in waiting {
            if ended.is_some() {
                self.ask(service.clone(), reply);
            } else {
                let _ = reply.send(Admission::NoInstances(no_instances_retry_s(fastrand::u32(..))));
            }
        }
    }

    fn report(&mut self) {
        for service in self.admissions.take_timed_out() {
            self.observer.admissions(&service, AdmissionEvent::TimedOut, 1);
        }
        self.observer.set_outstanding(self.admissions.outstanding());
    }
}

/// Runs a call, and returns its client and its answer. If the call panics, the answer is an error, and the client is lost.
async fn caught<S, T>(
    call: impl Future<Output = (S, Result<T, StoreError>)> + Send + 'static,
) -> (Option<S>, Result<T, StoreError>)
where
    S: Send + 'static,
    T: Send + 'static,
{
    match tokio::spawn(call).await {
        Ok((client, answer)) => (Some(client), answer),
        Err(_) => {
            let why = "a bug in weir ended the call: its log has the panic; please report it";
            (None, Err(StoreError::Temporary(why.to_owned())))
        }
    }
}
