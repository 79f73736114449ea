//! What the keeper's tests move: a clock, a log and all around them.

use std::{
    collections::VecDeque,
    ops::Deref,
    sync::RwLock,
    task::{Poll, Waker},
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::time::Time,
    limit::{
        pressure::{PressureState, activity::ActivityHash},
        share::{TurnNumber, overtaken},
    },
};

use super::super::*;
use crate::{clock::tests::noon, observer::tests::TestObserver};

#[derive(Clone, Default)]
pub(super) struct Watch(Arc<RwLock<(Duration, Vec<Waker>)>>);

impl Watch {
    pub(super) fn advance(&self, by: Duration) {
        let mut inner = self.0.write().unwrap();
        inner.0 += by;
        inner.1.drain(..).for_each(Waker::wake);
    }

    /// Whether somebody waits until it has moved on.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.0.write().unwrap().1.is_empty()
    }

    pub(super) fn minute(&self) -> Minute {
        Minute::from(self.now())
    }
}

impl Clock for Watch {
    fn now(&self) -> Time {
        noon().plus(i64::try_from(self.passed().as_millis()).unwrap())
    }

    fn passed(&self) -> Duration {
        self.0.write().unwrap().0
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        let until = self.passed() + wait;
        std::future::poll_fn(move |context| {
            let mut inner = self.0.write().unwrap();
            if inner.0 >= until {
                return Poll::Ready(());
            }
            inner.1.push(context.waker().clone());
            Poll::Pending
        })
    }
}

/// A turn as the log has seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) number: u64,
    request: SyncRequest,
}

impl Deref for Turn {
    type Target = SyncRequest;

    fn deref(&self) -> &SyncRequest {
        &self.request
    }
}

impl Turn {
    pub(super) fn users(&self) -> usize {
        self.active.iter().map(|active| active.users.len()).sum()
    }
}

/// What the log does with a turn.
pub(super) enum Does {
    Answers(SyncReply),
    Refuses,
    /// It has taken a later turn under this name.
    IsAhead,
    Hangs,
    /// Grants all of the room; the answer is heard so much later, by a process that stands still until then.
    StoodStill(Watch, Duration),
}

/// A log: does the next thing, or else grants all of the room.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<RwLock<(Vec<Turn>, VecDeque<Does>)>>);

impl Log {
    pub(super) fn next(&self, does: Does) {
        self.0.write().unwrap().1.push_back(does);
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        self.0.write().unwrap().0.clone()
    }

    pub(super) fn last(&self) -> Turn {
        self.turns().pop().unwrap()
    }
}

impl Share<SharedPlaces> for Log {
    async fn turn(&mut self, _: &(), number: TurnNumber, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let SyncRequest { held, room, .. } = *request;
        let next = {
            let mut inner = self.0.write().unwrap();
            let turn = Turn { number: number.number, request: request.clone() };
            let follows = |last: &Turn| turn.number == last.number + 1 || turn == *last;
            assert!(inner.0.last().is_none_or(follows), "{turn:?}: neither next nor last");
            inner.0.push(turn);
            inner.1.pop_front()
        };
        let part = room.unwrap_or(0);
        let all = SyncReply { held: held.max(part), part, members: 1, bytes: 10, ..SyncReply::default() };
        match next {
            None => Ok(all),
            Some(Does::StoodStill(clock, by)) => {
                clock.advance(by);
                Ok(all)
            }
            Some(Does::Answers(reply)) => Ok(SyncReply { held: held.max(reply.held), ..reply }),
            Some(Does::Refuses) => Err(StoreError::Temporary("no".to_owned())),
            Some(Does::IsAhead) => Err(overtaken()),
            Some(Does::Hangs) => std::future::pending().await,
        }
    }
}

/// A policy with a maximum of users and a window in minutes, or without pressure.
pub(super) fn policy(pressure: Option<(u64, u8)>) -> Arc<Policy> {
    let pressure = pressure.map(|(max, minutes)| {
        format!("[pressure]\nmax_active_users = {max}\nwindow = \"{minutes}m\"\naction = \"suppress\"\n")
    });
    Arc::new(crate::tests::policy(&pressure.unwrap_or_default()))
}

/// A keeper and all around it.
pub(super) struct World {
    /// `None`: it runs.
    keeper: Option<PressureKeeper<Log, Watch>>,
    pub(super) pressure: Arc<Pressure>,
    pub(super) status: PressureStatus,
    pub(super) policy: Arc<Current<Policy>>,
    pub(super) log: Log,
    pub(super) clock: Watch,
    pub(super) counts: Arc<TestObserver>,
}

impl World {
    pub(super) fn new(rule: Option<(u64, u8)>) -> Self {
        let (log, clock, counts) = (Log::default(), Watch::default(), Arc::<TestObserver>::default());
        let policy = Current::new(policy(rule));
        let (keeper, pressure, status) =
            PressureKeeper::new(log.clone(), clock.clone(), Arc::clone(&policy), Arc::<TestObserver>::clone(&counts));
        Self { keeper: Some(keeper), pressure, status, policy, log, clock, counts }
    }

    /// With so many users at the most and a window of 10 minutes, read.
    pub(super) async fn loaded(max: u64) -> Self {
        let mut world = Self::new(Some((max, 10)));
        world.keeper().load(Duration::ZERO).await.unwrap();
        world
    }

    /// With a thousand users at the most, and places for them.
    pub(super) async fn with_places() -> Self {
        let mut world = Self::loaded(1_000).await;
        world.turn().await;
        world
    }

    pub(super) fn keeper(&mut self) -> &mut PressureKeeper<Log, Watch> {
        self.keeper.as_mut().unwrap()
    }

    /// The keeper runs until it is told to stop.
    pub(super) fn run(&mut self) -> (CancellationToken, JoinHandle<()>) {
        let (stop, keeper) = (CancellationToken::new(), self.keeper.take().unwrap());
        (stop.clone(), tokio::spawn(keeper.run(stop)))
    }

    pub(super) fn state(&self) -> Arc<PressureState> {
        self.pressure.state().unwrap()
    }

    pub(super) fn is_active(&self, user: u64) -> bool {
        self.state().users.is_active(ActivityHash(user), self.clock.minute())
    }

    pub(super) fn note(&self, users: std::ops::Range<u64>) {
        let minute = self.clock.minute();
        self.pressure.note(users.map(spread), minute, minute);
    }

    /// A turn, a second after the last one.
    pub(super) async fn turn(&mut self) -> bool {
        self.clock.advance(TURN_EVERY);
        self.keeper().round().await
    }

    /// The same, in which the log does this.
    pub(super) async fn turn_that(&mut self, does: Does) -> bool {
        self.log.next(does);
        self.turn().await
    }
}

pub(super) fn spread(user: u64) -> ActivityHash {
    ActivityHash(user.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

pub(super) fn told(minute: Minute, users: &[u64]) -> ActiveIn {
    ActiveIn { minute, new: 0, users: users.iter().map(|user| ActivityHash(*user)).collect() }
}

/// Waits until something is so, for at most a minute of the real clock.
pub(super) async fn until(what: &str, so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
