//! The task on services in memory.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use weir_core::{
    limit::share::TurnNumber,
    ports::{Clock as _, Share},
};
use weir_worker::clock::SystemClock;

use super::*;
use crate::{
    observer::{AdmissionEvent, AdmissionObserver},
    service::{EmbeddedServices, ServiceShares, Services, ShareReply, ShareTurn},
};

/// How long a test may wait.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

/// Looks at nothing.
struct Unobserved;

impl AdmissionObserver for Unobserved {
    fn admissions(&self, _: &ServiceName, _: AdmissionEvent, _: u64) {}
    fn set_outstanding(&self, _: usize) {}
}

/// Services that may hang.
#[derive(Clone)]
struct Connection(EmbeddedServices, Arc<AtomicBool>);

impl Connection {
    async fn wait(&self) {
        if self.1.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl Share<ServiceShares> for Connection {
    async fn turn(
        &mut self,
        service: &ServiceName,
        number: TurnNumber,
        turn: &ShareTurn,
    ) -> Result<ShareReply, StoreError> {
        self.wait().await;
        self.0.turn(service, number, turn).await
    }
}

impl Services for Connection {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: Option<&Registration>,
    ) -> Result<Registered, StoreError> {
        self.wait().await;
        self.0.register(service, instance, registration).await
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        self.wait().await;
        self.0.look(service).await
    }
}

/// A task on these services, as this holder.
fn task(services: &EmbeddedServices, holder: &str, hangs: &Arc<AtomicBool>) -> ServiceDesk {
    let connection = Connection(services.for_member(holder), Arc::clone(hangs));
    let (keeper, desk) = ServiceKeeper::new(move || connection.clone(), holder, SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
    desk
}

#[test]
fn an_id_is_a_holder_and_a_number() {
    let id = AdmissionId::parse("5f0c.18446744073709551615").unwrap();
    assert_eq!(id.to_string(), "5f0c.18446744073709551615");
    for text in ["", "5f0c", "5f0c.", ".7", "A.7", "a b.7", "a.+7", "a.7.7", "a.18446744073709551616"] {
        assert_eq!(AdmissionId::parse(text), None, "{text:?}");
    }
}

#[tokio::test]
async fn however_many_look_at_services_others_are_registered() {
    let services = EmbeddedServices::new("x", || SystemClock.now());
    let desk = task(&services, "one", &Arc::new(AtomicBool::new(true)));
    let begun = Arc::new(AtomicUsize::new(0));
    for number in 0..200 {
        let (desk, begun) = (desk.clone(), Arc::clone(&begun));
        tokio::spawn(async move {
            begun.fetch_add(1, Ordering::Relaxed);
            desk.look(&name(&format!("invented-{number}"))).await.map(drop)
        });
    }
    // There is one thread: who has begun has asked, or waits for room to ask.
    let all = async {
        while begun.load(Ordering::Relaxed) < 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("all look");
    let registration =
        Registration { capacity_per_s: 1, concurrency: 1, timeout_ms: 1_000, network_ms: 50, interval_ms: 10_000 };
    let refused = desk.register(&name("email"), name("i"), Some(registration)).await;
    let reason = refused.map(drop).expect_err("Redis hangs").to_string();
    assert!(reason.contains("no answer within"), "it has been asked: {reason}");
}
