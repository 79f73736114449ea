//! Two members that want all of a limit hold half each, whatever is lost, and one has all when the other one is silent.

use testkit::proxy::{Mode, Proxy};
use weir_core::{basis::time::Time, ports::StoreError};
use weir_redis::RedisOptions;

use super::{
    Both, Scripted, Servers,
    pressure::Active,
    route::{RATE, Routes},
    service::Shares,
};
use crate::redis_support::behind_proxy;

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
    /// Two of them at a server behind a proxy.
    async fn start() -> (Proxy, Self) {
        let servers = Servers::one();
        let (proxy, options) = behind_proxy(&servers.urls()[0]).await;
        let options = RedisOptions { tries: 1, ..options };
        (proxy, Self { both: Both::new(servers, options).await, held: [0; 3], ahead_s: 0 })
    }

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

    /// A member takes a turn whose reply is lost: that, by the reference.
    async fn lose(&mut self, proxy: &Proxy, member: usize, step: &[S::Step]) -> S::Reply {
        proxy.set(Mode::LoseReply);
        let lost = self.both.limit.on_server(member, step).await.map(drop);
        assert!(matches!(lost, Err(StoreError::Temporary(_))), "{lost:?}");
        let now = self.both.limit.taken_at(member, &step[0]);
        self.both.limit.on_reference(member, &step[0], now)
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
    let (proxy, mut two) = Two::<S>::start().await;
    two.offer().await;
    two.settle().await;

    // A turn whose reply is lost is taken once: the other one sees so, and nothing is granted twice. Where it is made again, it gets what it
    // had.
    for is_repeated in [false, true] {
        let step = [two.both.limit.want_all(0)];
        let lost = S::held(&two.lose(&proxy, 0, &step).await);
        two.turn(1).await;
        if is_repeated {
            let again = two.both.take(0, &step, true).await.unwrap();
            assert_eq!((S::held(&again[0]), two.held), (lost, [S::ALL / 2, S::ALL / 2, 0]));
        }
        two.settle().await;
    }

    // After a loss nobody gets more before the other one has told what it holds.
    two.both.wipe();
    two.offer().await;
    for member in [1, 0] {
        assert!(two.turn(member).await <= S::ALL / 2);
    }
    two.settle().await;

    // One that is silent for longer than its lease leaves its part to the other one: at the log of activity once it counts no more.
    two.held[0] = 0;
    for _ in 0..12 {
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

#[tokio::test]
async fn a_lost_reply_neither_burns_nor_doubles_what_is_left_of_a_rate() {
    let (proxy, mut two) = Two::<Routes>::start().await;
    let member = [two.both.limit.at_a_rate(0, 0, 0)];
    two.both.take(0, &member, true).await.unwrap();
    two.pass(2);
    let all = [two.both.limit.at_a_rate(0, RATE, 0)];
    assert_eq!(Routes::held(&two.both.take(0, &all, true).await.unwrap()[0]), RATE);
    let began = two.both.limit.taken_at(0, &all[0]);

    // It gives 6 back, and takes 4 of these.
    let exchange = [two.both.limit.at_a_rate(0, 4, 6)];
    assert_eq!(Routes::held(&two.lose(&proxy, 0, &exchange).await), 4);
    for _ in 0..2 {
        assert_eq!(Routes::held(&two.both.take(0, &exchange, true).await.unwrap()[0]), 4);
    }
    let rest = [two.both.limit.at_a_rate(0, RATE, 0)];
    let left = Routes::held(&two.both.take(0, &rest, true).await.unwrap()[0]);
    let passed_ms = two.both.limit.taken_at(0, &rest[0]).millis() - began.millis();
    let came_in = RATE * passed_ms.unsigned_abs() / 1_000;
    assert!((2..=2 + came_in + 1).contains(&left), "{left} are left, and {came_in} came in");
}
