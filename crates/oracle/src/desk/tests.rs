//! The task on services that never answer.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use weir_core::{limit::share::TurnNumber, ports::Share};
use weir_worker::clock::SystemClock;

use super::*;
use crate::{
    observer::{AdmissionEvent, AdmissionObserver},
    service::{ServiceShares, Services, ShareReply, ShareTurn},
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

struct Silent;

impl Share<ServiceShares> for Silent {
    async fn turn(&mut self, _: &ServiceName, _: TurnNumber, _: &ShareTurn) -> Result<ShareReply, StoreError> {
        pending().await
    }
}

impl Services for Silent {
    async fn register(
        &mut self,
        _: &ServiceName,
        _: &ServiceName,
        _: Option<&Registration>,
    ) -> Result<Registered, StoreError> {
        pending().await
    }

    async fn look(&mut self, _: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        pending().await
    }
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
    let (keeper, desk) = ServiceKeeper::new(|| Silent, "one", SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
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
