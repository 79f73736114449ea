//! Two members that want all of a limit hold half each, whatever is lost, and one has all when the other one is silent.

use testkit::proxy::{Mode, Proxy};
use weir_core::{basis::time::Time, ports::StoreError};
use weir_redis::RedisOptions;

use super::{Both, Scripted, Servers, pressure::Active, route::Routes, service::Shares};
use crate::redis_support::options;

/// A limit whose members share one amount.
pub(super) trait Shared: Scripted {
    const ALL: u64;
    /// A turn reads so many of the records, the first ones.
    const READS: usize;

    /// What makes that there is something to share.
    fn offer(&self) -> Vec<Self::Step> {
        Vec::new()
    }

    /// A turn of a member that wants all.
    fn want_all(&mut self, member: usize) -> Self::Step;

    /// What the member holds then.
    fn held(reply: &Self::Reply) -> u64;

    /// When a member took its last turn, by what that has written.
    fn taken_at(&self, member: usize, step: &Self::Step) -> Time;
}

struct Two<S> {
    both: Both<S>,
    /// What each of them holds, and a third one.
    held: [u64; 3],
    ahead_s: i64,
}

impl<S: Shared> Two<S> {
    async fn offer(&mut self) {
        for step in self.both.limit.offer() {
            self.both.take(0, &[step], true).await.unwrap();
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.ahead_s += seconds;
        self.both.place.disturb(0, &[self.ahead_s], &[]);
    }

    async fn turn(&mut self, member: usize) -> u64 {
        let step = self.both.limit.want_all(member);
        let replies = self.both.take(member, &[step], true).await.unwrap();
        self.held[member] = S::held(&replies[0]);
        assert!(self.held.iter().sum::<u64>() <= S::ALL, "{:?} of {}", self.held, S::ALL);
        self.held[member]
    }

    async fn settle(&mut self) {
        // For longer than a service is known before its shares grow.
        for _ in 0..8 {
            self.pass(1);
            self.turn(0).await;
            self.turn(1).await;
        }
        assert_eq!(self.held, [S::ALL / 2, S::ALL / 2, 0]);
    }
}

async fn run<S: Shared>() {
    let servers = Servers::one();
    let target = servers.urls()[0].trim_start_matches("redis://").to_owned();
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&target).unwrap()).await.unwrap();
    let options = RedisOptions { tries: 1, ..options(&[format!("redis://{}", proxy.address())]) };
    let mut two = Two { both: Both::<S>::new(servers, options).await, held: [0; 3], ahead_s: 0 };
    two.offer().await;
    two.settle().await;

    // A turn whose reply is lost is taken once: the other one sees so, and nothing is granted twice.
    let step = [two.both.limit.want_all(0)];
    proxy.set(Mode::LoseReply);
    let lost = two.both.limit.on_server(0, &step).await.map(drop);
    assert!(matches!(lost, Err(StoreError::Temporary(_))), "{lost:?}");
    let now = two.both.limit.taken_at(0, &step[0]);
    two.both.limit.on_reference(0, &step[0], now);
    two.turn(1).await;
    two.settle().await;

    // After a loss nobody gets more before the other one has told what it holds.
    two.both.wipe();
    two.offer().await;
    for member in [1, 0] {
        assert!(two.turn(member).await <= S::ALL / 2);
    }
    two.settle().await;

    // One that is silent for longer than its lease leaves its part to the other one.
    two.held[0] = 0;
    for _ in 0..8 {
        two.pass(2);
        two.turn(1).await;
    }
    assert_eq!(two.held[1], S::ALL);
    two.both.wipe();
    two.offer().await;
    assert_eq!(two.turn(2).await, 0, "somebody holds all, and has not told since the loss");

    for (_, key) in two.both.limit.records().into_iter().take(S::READS) {
        two.both.place.query::<()>(&["DEL", &key]);
        two.both.place.query::<()>(&["SET", &key, "mine"]);
        let step = [two.both.limit.want_all(0)];
        let refused = two.both.limit.on_server(0, &step).await.map(drop);
        let is_told = matches!(&refused, Err(StoreError::Fatal(why)) if why.contains("WRONGTYPE"));
        assert!(is_told, "{key} of another kind: {refused:?}");
        assert_eq!(two.both.place.query::<String>(&["GET", &key]), "mine", "it is left alone");
        two.both.place.query::<()>(&["DEL", &key]);
    }
}

#[tokio::test]
async fn two_share_a_limit_whatever_is_lost_and_one_that_is_silent_leaves_its_part() {
    run::<Active>().await;
    run::<Routes>().await;
    run::<Shares>().await;
}
