//! The task on services that never answer, or when they are told to.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::Poll,
};

use tokio::sync::Notify;
use weir_core::{limit::share::TurnNumber, ports::Share};
use weir_worker::clock::SystemClock;

use super::*;
use crate::{
    observer::{AdmissionEvent, AdmissionObserver},
    service::{ServiceShares, Services, ShareReply, ShareTurn, Total},
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

/// A client that answers its first turn when it is notified, and later ones at once, with a share of one admission; it answers nothing else. If
/// the flag is set, its next call panics.
#[derive(Clone, Default)]
struct Told(Arc<Notify>, bool, Arc<AtomicBool>);

impl Told {
    fn may_panic(&self) {
        assert!(!self.2.swap(false, Ordering::Relaxed), "by the test");
    }
}

impl Share<ServiceShares> for Told {
    async fn turn(&mut self, _: &ServiceName, _: TurnNumber, _: &ShareTurn) -> Result<ShareReply, StoreError> {
        self.may_panic();
        if !std::mem::replace(&mut self.1, true) {
            self.0.notified().await;
        }
        let total = Total { instances: 1, per_s: 10, concurrency: 1, timeout_ms: 3_600_000 };
        Ok(ShareReply { per_s: 10, concurrency: 1, total, members: 1, ..ShareReply::default() })
    }
}

impl Services for Told {
    async fn register(
        &mut self,
        _: &ServiceName,
        _: &ServiceName,
        _: Option<&Registration>,
    ) -> Result<Registered, StoreError> {
        pending().await
    }

    async fn look(&mut self, _: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        self.may_panic();
        pending().await
    }
}

#[test]
fn an_id_is_a_holder_and_a_number() {
    assert_eq!(AdmissionId::parse("5f0c.18446744073709551615").unwrap().to_string(), "5f0c.18446744073709551615");
    for text in ["", "5f0c", "5f0c.", ".7", "A.7", "a b.7", "a.+7", "a.7.7", "a.18446744073709551616"] {
        assert_eq!(AdmissionId::parse(text), None, "{text:?}");
    }
}

#[tokio::test]
async fn however_many_look_at_services_others_are_registered() {
    let (keeper, desk) = ServiceKeeper::new(Told::default, "one", SystemClock, Arc::new(Unobserved));
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

#[tokio::test]
async fn who_goes_away_before_the_answer_holds_no_admission() {
    let told = Told::default();
    let connect = told.clone();
    let (keeper, desk) = ServiceKeeper::new(move || connect.clone(), "one", SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
    let email = name("email");
    {
        let mut asking = pin!(desk.ask(&email));
        let waits = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context).is_pending())).await;
        // Messages are taken in their order: it waits for the first turn by now.
        assert!(waits && desk.states().await.len() == 1);
    }
    told.0.notify_one();
    given(&desk).await;
}

/// Asks until an admission is given. On a slow machine a turn may have no answer in time.
async fn given(desk: &ServiceDesk) {
    let asking = async {
        let mut asked = desk.ask(&name("email")).await;
        while matches!(asked, Admission::Denied(Denial::NoLease, _)) {
            asked = desk.ask(&name("email")).await;
        }
        asked
    };
    let asked = tokio::time::timeout(DEADLINE, asking).await.expect("it is told");
    assert!(matches!(asked, Admission::Given { .. }), "one may work at a time: {asked:?}");
}

#[tokio::test]
async fn who_waits_for_a_turn_without_an_answer_is_told_and_its_client_takes_the_next_one() {
    let (keeper, desk) = ServiceKeeper::new(Told::default, "one", SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
    let told = tokio::time::timeout(DEADLINE, desk.ask(&name("email"))).await.expect("it is told");
    assert_eq!(told, Admission::Denied(Denial::NoLease, 1));
    given(&desk).await;
}

#[tokio::test]
async fn a_call_that_panics_has_no_answer() {
    let told = Told::default();
    let connect = told.clone();
    let (keeper, desk) = ServiceKeeper::new(move || connect.clone(), "one", SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
    told.2.store(true, Ordering::Relaxed);
    let seen = desk.look(&name("email")).await;
    let reason = seen.map(drop).expect_err("it panics").to_string();
    assert!(reason.contains("a bug in weir"), "{reason}");
    told.2.store(true, Ordering::Relaxed);
    let asked = tokio::time::timeout(DEADLINE, desk.ask(&name("email"))).await.expect("it is told");
    assert_eq!(asked, Admission::Denied(Denial::NoLease, 1));
    told.0.notify_one();
    given(&desk).await;
}
