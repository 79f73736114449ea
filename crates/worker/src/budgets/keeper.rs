//! The task that holds a process's leases.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use weir_core::{
    lease::{CallNumber, Claimed, Due, Funded, Leases, Lender, Owed, Refused, Ticket},
    ledger::{TakeAnswer, TakeRequest},
    ports::{Clock, Ledger, StoreError},
};

use super::{
    Budgets, Message, QUEUE, Settling, TaskLender,
    calls::{Called, charge, count_calls, give_back, look, take},
    returns::Returns,
};
use crate::{
    observer::{LedgerCall, Observer},
    share::run_of,
};

/// Budgets that hold a lease at once in a process, at most; beyond that the one that was claimed least lately gives its lease back.
const MOST_BUDGETS: usize = 10_000;
/// Calls to the ledger under way at the same time, at most; each has connections of its own.
pub(super) const MOST_CALLS: usize = 64;
/// How often it looks while as many calls as may be are under way: a budget may be unavailable by then, for those who wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What replays owe that waits to be looked up, at most: more is not counted.
const MOST_OWED: usize = 10_000;
/// How long it waits until budgets that did not answer are asked again what replays owe them.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last tokens may take to be given back when the process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Holds the leases, answers claims from them, and asks the ledger ahead of need.
pub struct BudgetKeeper<L, C> {
    leases: Leases,
    /// Makes one more, where all are in use: a node that does not answer keeps no other waiting.
    connect: Box<dyn Fn() -> L + Send>,
    /// Those that are not in use.
    free: Vec<L>,
    clock: C,
    observer: Arc<dyn Observer>,
    inbox: mpsc::Receiver<Message>,
    /// What comes back by itself, and to whom that is told.
    settled: mpsc::UnboundedReceiver<Settling>,
    pub(super) lender: Arc<dyn Lender>,
    /// Whom to wake whose claims were pending.
    pending: BTreeMap<Ticket, Arc<Notify>>,
    calls: JoinSet<(L, Called)>,
    /// Those to be made once fewer are under way.
    waiting: VecDeque<(CallNumber, TakeRequest)>,
    /// What replays owe, to be looked up from then on, once fewer are under way.
    owed: Vec<Owed>,
    owed_from: Duration,
    returns: Returns,
}

impl<L, C> BudgetKeeper<L, C>
where
    L: Ledger + 'static,
    C: Clock,
{
    /// The task, to be run, and where it is asked. `connect` makes what asks the ledger, for one call at a time.
    pub fn new(connect: impl Fn() -> L + Send + 'static, clock: C, observer: Arc<dyn Observer>) -> (Self, Budgets) {
        let (sender, inbox) = mpsc::channel(QUEUE);
        let (settles, settled) = mpsc::unbounded_channel();
        let lender = Arc::new(TaskLender(settles));
        let (leases, connect) = (Leases::new(MOST_BUDGETS, run_of(&clock)), Box::new(connect));
        let (free, pending, calls, waiting) = (Vec::new(), BTreeMap::new(), JoinSet::new(), VecDeque::new());
        let (owed, owed_from) = (Vec::new(), Duration::ZERO);
        let returns = Returns::default();
        let keeper = Self {
            leases,
            connect,
            free,
            clock,
            observer,
            inbox,
            settled,
            lender,
            pending,
            calls,
            waiting,
            owed,
            owed_from,
            returns,
        };
        (keeper, Budgets { inbox: sender, tickets: Arc::default() })
    }

    /// Works until it is closed, or nobody is left to ask.
    pub async fn run(mut self) {
        loop {
            let next_at = self.call_ledger();
            self.wake_ready();
            let wait = next_at.map_or(Duration::MAX, |at| at.saturating_sub(self.clock.passed()));
            tokio::select! {
                biased;
                Some(called) = self.calls.join_next() => {
                    // All that are done: what is due is looked for once.
                    let mut next = Some(called);
                    while let Some(called) = next {
                        if let Ok((ledger, called)) = called {
                            self.free.push(ledger);
                            self.called(called);
                        }
                        next = self.calls.try_join_next();
                    }
                }
                Some(settled) = self.settled.recv() => self.settle(settled),
                message = self.inbox.recv() => match message {
                    Some(Message::Claim { ticket, claim, wake, reply }) => {
                        // What came back before the claim was made is taken first: it may have come after the look above.
                        self.settle_all();
                        // Whoever claims decides: the clock is right.
                        self.leases.begin_run(|| run_of(&self.clock));
                        let funded = match self.leases.claim(ticket, &claim, self.clock.passed()) {
                            Claimed::Pending => {
                                self.pending.insert(ticket, wake);
                                None
                            }
                            Claimed::Answered(answers) => {
                                self.pending.remove(&ticket);
                                Some(Funded::new(claim, answers, Arc::clone(&self.lender)))
                            }
                        };
                        // Where nobody hears it any more, the tokens come back.
                        let _ = reply.send(funded);
                    }
                    Some(Message::States(reply)) => {
                        let _ = reply.send(self.leases.states(self.clock.passed()));
                    }
                    Some(Message::Close(closed)) => {
                        self.close().await;
                        let _ = closed.send(());
                        return;
                    }
                    None => return self.close().await,
                },
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    fn settle(&mut self, settled: Settling) {
        match settled {
            Settling::Unspent(tokens) => self.leases.put_back(&tokens, self.clock.passed()),
            Settling::Owed(owed) => self.owes(owed),
        }
    }

    /// What has come back by now.
    fn settle_all(&mut self) {
        while let Ok(settled) = self.settled.try_recv() {
            self.settle(settled);
        }
    }

    /// Sends what is due; gives when to look again, if nothing happens before.
    fn call_ledger(&mut self) -> Option<Duration> {
        let sent_at = self.clock.passed();
        self.send_waiting(sent_at);
        if self.calls.len() >= MOST_CALLS {
            return Some(sent_at + LOOK_EVERY);
        }
        let owed_at = self.look_up_owed(sent_at);
        let Due { takes, returns, next_at } = self.leases.due(sent_at);
        self.waiting.extend(takes);
        self.send_waiting(sent_at);
        self.returns.add(returns);
        let again_at = self.give_back(sent_at);
        next_at.into_iter().chain(owed_at).chain(again_at).min()
    }

    /// Gives back what may be given back now; gives when to look again.
    fn give_back(&mut self, sent_at: Duration) -> Option<Duration> {
        let due = self.returns.due(sent_at);
        if !due.is_empty() {
            let ledger = self.ledger();
            self.calls.spawn(give_back(ledger, due, sent_at));
        }
        self.returns.next_at(sent_at)
    }

    /// Keeps what replays owe until it is looked up.
    fn owes(&mut self, owed: Vec<Owed>) {
        self.owed.extend(owed);
        if self.owed.len() > MOST_OWED {
            tracing::warn!("replays owe too much to budgets that do not answer: what is beyond may come on top");
            self.owed.truncate(MOST_OWED);
        }
    }

    /// Looks how the budgets stand to which replays owe tokens; gives when, where that is later.
    fn look_up_owed(&mut self, now: Duration) -> Option<Duration> {
        if self.owed.is_empty() || now < self.owed_from {
            return (!self.owed.is_empty()).then_some(self.owed_from);
        }
        let (ledger, owed) = (self.ledger(), std::mem::take(&mut self.owed));
        self.calls.spawn(look(ledger, owed));
        None
    }

    /// Makes the calls that wait, as many as may be under way.
    fn send_waiting(&mut self, sent_at: Duration) {
        while self.calls.len() < MOST_CALLS
            && let Some((call, request)) = self.waiting.pop_front()
        {
            let ledger = self.ledger();
            self.calls.spawn(take(ledger, call, request, sent_at));
        }
    }

    fn ledger(&mut self) -> L {
        self.free.pop().unwrap_or_else(|| (self.connect)())
    }

    fn wake_ready(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        for ticket in self.leases.ready(self.clock.passed()) {
            if let Some(wake) = self.pending.get(&ticket) {
                wake.notify_one();
            }
        }
    }

    fn called(&mut self, called: Called) {
        let passed = self.clock.passed();
        match called {
            Called::Took { call, budget, limit, sent_at, answer } => {
                if let Ok(answer) = &answer {
                    self.observer.budget_left(&budget, limit.saturating_sub(answer.used));
                }
                let answer = answer.map_err(|error| {
                    tracing::warn!(budget = &*budget.name, "the budget's tokens could not be asked for: {error}");
                    Refused
                });
                self.observer.ledger_called(match answer {
                    Ok(_) => LedgerCall::Took,
                    Err(Refused) => LedgerCall::Failed,
                });
                self.leases.answered(call, answer, sent_at, passed);
            }
            Called::GaveBack { turns, sent_at, outcome } => {
                self.count_calls(turns.len(), (LedgerCall::GaveBack, &outcome));
                self.returns.answered(turns, sent_at, &outcome);
            }
            Called::Looked(looked, outcome) => {
                if let Err(error) = &outcome {
                    tracing::warn!(
                        "budgets do not say whether they have counted replays, and are asked again: {error}"
                    );
                }
                self.count_calls(looked.len(), (LedgerCall::Took, &outcome));
                self.looked(looked, passed);
            }
            Called::Charged(calls, outcome) => {
                if let Err(error) = &outcome {
                    tracing::warn!("tokens that replays owe to budgets may be missing there, and come on top: {error}");
                }
                self.count_calls(calls, (LedgerCall::Took, &outcome));
            }
        }
    }

    /// Takes what replays owe to the budgets that have not counted it; those that did not answer are asked again.
    fn looked(&mut self, looked: Vec<(Owed, Option<TakeAnswer>)>, passed: Duration) {
        let (mut due, mut unknown) = (Vec::new(), Vec::new());
        for (owed, answer) in looked {
            match answer {
                Some(answer) => due.extend(owed.due(&answer, passed)),
                None => unknown.push(owed),
            }
        }
        if !unknown.is_empty() {
            self.owed_from = passed + AGAIN;
            self.owes(unknown);
        }
        if !due.is_empty() {
            let ledger = self.ledger();
            self.calls.spawn(charge(ledger, due));
        }
    }

    fn count_calls(&self, calls: usize, of: (LedgerCall, &Result<(), StoreError>)) {
        count_calls(&*self.observer, calls, of);
    }

    /// Waits for the calls under way.
    async fn finish_calls(&mut self) {
        let (clock, calls) = (&self.clock, &mut self.calls);
        let mut called = Vec::new();
        let under_way = async {
            while let Some(call) = calls.join_next().await {
                called.extend(call);
            }
        };
        // A node that hangs keeps nothing back that another one has granted.
        tokio::select! {
            () = under_way => {}
            () = clock.sleep(CLOSE_WITHIN) => {}
        }
        called.into_iter().for_each(|(_, called)| self.called(called));
    }

    /// Gives back what is left.
    async fn close(mut self) {
        self.settle_all();
        self.owed_from = Duration::ZERO;
        self.look_up_owed(Duration::ZERO);
        self.finish_calls().await;
        // What replays owe is taken then.
        self.finish_calls().await;
        if !self.owed.is_empty() {
            tracing::warn!("the process ends before budgets have counted what replays owe: it may come on top");
        }
        self.settle_all();
        let last = self.leases.close();
        self.returns.add(last);
        if self.returns.is_empty() {
            return;
        }
        let mut ledger = self.ledger();
        let (returns, clock, observer) = (&mut self.returns, &self.clock, &*self.observer);
        let until_answered = async {
            loop {
                let sent_at = clock.passed();
                let due = returns.due(sent_at);
                if due.is_empty() {
                    let Some(next) = returns.next_at(sent_at) else { return };
                    clock.sleep(next.saturating_sub(sent_at)).await;
                    continue;
                }
                let mut answers = vec![None; due.len()];
                let outcome = ledger.give_back(&due, &mut answers).await;
                count_calls(observer, due.len(), (LedgerCall::GaveBack, &outcome));
                returns.answered(due.into_iter().zip(answers).collect(), sent_at, &outcome);
            }
        };
        let in_time = tokio::select! {
            () = until_answered => true,
            () = clock.sleep(CLOSE_WITHIN) => false,
        };
        if !in_time || !self.returns.is_empty() {
            tracing::warn!("the process ends before all tokens of budgets are given back: they count as spent");
        }
    }
}
