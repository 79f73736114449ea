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
    budget::BudgetId,
    lease::{CallNumber, Claimed, Due, Leases, Owed, Refused, Ticket},
    ledger::{GiveBack, TakeAnswer, TakeRequest},
    ports::{Clock, Ledger, StoreError},
};

use super::{Budgets, Message, QUEUE};
use crate::observer::{LedgerCall, Observer};

/// Budgets that hold a lease at once in a process, at most; beyond that the one that was claimed least lately gives its lease back.
const MOST_BUDGETS: usize = 10_000;
/// Calls to the ledger under way at the same time, at most; each has connections of its own.
pub(super) const MOST_CALLS: usize = 64;
/// How often it looks while as many calls as may be are under way: a budget may be unavailable by then, for those who wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What replays owe that waits to be looked up, at most: more is not counted.
const MOST_OWED: usize = 10_000;
/// Turns of tokens to be given back that have no answer, at most: beyond that they count as spent.
const MOST_UNRETURNED: usize = 10_000;
/// How long it waits until budgets that did not answer are asked again what replays owe them, and given tokens back again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last tokens may take to be given back when the process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// What came of a call.
enum Called {
    Took {
        call: CallNumber,
        budget: BudgetId,
        limit: u64,
        sent_at: Duration,
        answer: Result<TakeAnswer, StoreError>,
    },
    GaveBack(Vec<GiveBack>, Result<(), StoreError>),
    /// How the budgets stand to which replays owe tokens.
    Looked(Vec<(Owed, Option<TakeAnswer>)>, Result<(), StoreError>),
    /// So many budgets have counted what replays owed.
    Charged(usize, Result<(), StoreError>),
}

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
    /// Whom to wake whose claims were pending.
    pending: BTreeMap<Ticket, Arc<Notify>>,
    calls: JoinSet<(L, Called)>,
    /// Those to be made once fewer are under way.
    waiting: VecDeque<(CallNumber, TakeRequest)>,
    /// What replays owe, to be looked up from then on, once fewer are under way.
    owed: Vec<Owed>,
    owed_from: Duration,
    /// What was given back without an answer, to be repeated from then on.
    unreturned: Vec<GiveBack>,
    unreturned_from: Duration,
}

impl<L, C> BudgetKeeper<L, C>
where
    L: Ledger + 'static,
    C: Clock,
{
    /// The task, to be run, and where it is asked. `connect` makes what asks the ledger, for one call at a time.
    pub fn new(connect: impl Fn() -> L + Send + 'static, clock: C, observer: Arc<dyn Observer>) -> (Self, Budgets) {
        let (sender, inbox) = mpsc::channel(QUEUE);
        let (leases, connect) = (Leases::new(MOST_BUDGETS, clock.now().millis()), Box::new(connect));
        let (free, pending, calls, waiting) = (Vec::new(), BTreeMap::new(), JoinSet::new(), VecDeque::new());
        let (owed, owed_from) = (Vec::new(), Duration::ZERO);
        let (unreturned, unreturned_from) = (Vec::new(), Duration::ZERO);
        let keeper = Self {
            leases,
            connect,
            free,
            clock,
            observer,
            inbox,
            pending,
            calls,
            waiting,
            owed,
            owed_from,
            unreturned,
            unreturned_from,
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
                message = self.inbox.recv() => match message {
                    Some(Message::Claim { ticket, claim, wake, reply }) => {
                        let claimed = self.leases.claim(ticket, &claim, self.clock.passed());
                        match &claimed {
                            Claimed::Pending => drop(self.pending.insert(ticket, wake)),
                            Claimed::Answered(_) => drop(self.pending.remove(&ticket)),
                        }
                        // One that has gone meanwhile is judged again elsewhere: its tokens count as spent.
                        let _ = reply.send(claimed);
                    }
                    Some(Message::PutBack(tokens)) => self.leases.put_back(&tokens, self.clock.passed()),
                    Some(Message::Charge(owed)) => self.owes(owed),
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
        self.return_tokens(returns);
        let unreturned_at = self.return_again(sent_at);
        next_at.into_iter().chain(owed_at).chain(unreturned_at).min()
    }

    fn return_tokens(&mut self, returns: Vec<GiveBack>) {
        if !returns.is_empty() {
            let ledger = self.ledger();
            self.calls.spawn(give_back(ledger, returns));
        }
    }

    /// Repeats what was given back without an answer; gives when, where that is later.
    fn return_again(&mut self, now: Duration) -> Option<Duration> {
        if self.unreturned.is_empty() || now < self.unreturned_from {
            return (!self.unreturned.is_empty()).then_some(self.unreturned_from);
        }
        let unreturned = std::mem::take(&mut self.unreturned);
        self.return_tokens(unreturned);
        None
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
            Called::GaveBack(tokens, outcome) => self.gave_back(tokens, &outcome, passed),
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

    fn count_calls(&self, calls: usize, (call, outcome): (LedgerCall, &Result<(), StoreError>)) {
        let call = if outcome.is_ok() { call } else { LedgerCall::Failed };
        (0..calls).for_each(|_| self.observer.ledger_called(call));
    }

    /// Tokens were given back. Where it is not known whether all were, their turns are repeated: that gives none back twice.
    fn gave_back(&mut self, tokens: Vec<GiveBack>, outcome: &Result<(), StoreError>, passed: Duration) {
        self.count_calls(tokens.len(), (LedgerCall::GaveBack, outcome));
        match outcome {
            Ok(()) => {}
            Err(StoreError::Temporary(why)) if self.unreturned.len() + tokens.len() <= MOST_UNRETURNED => {
                tracing::warn!("tokens of budgets could not be given back, and are given back again: {why}");
                self.unreturned.extend(tokens);
                self.unreturned_from = passed + AGAIN;
            }
            Err(error) => tracing::warn!("tokens of budgets could not be given back, and count as spent: {error}"),
        }
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
        self.owed_from = Duration::ZERO;
        self.look_up_owed(Duration::ZERO);
        self.finish_calls().await;
        // What replays owe is taken then.
        self.finish_calls().await;
        if !self.owed.is_empty() {
            tracing::warn!("the process ends before budgets have counted what replays owe: it may come on top");
        }
        let mut returns = self.leases.close();
        returns.append(&mut self.unreturned);
        if returns.is_empty() {
            return;
        }
        let (mut ledger, clock) = (self.ledger(), &self.clock);
        let until_answered = async {
            let mut outcome = ledger.give_back(&returns).await;
            while let Err(StoreError::Temporary(why)) = &outcome {
                tracing::warn!("tokens of budgets could not be given back, and are given back again: {why}");
                clock.sleep(AGAIN).await;
                outcome = ledger.give_back(&returns).await;
            }
            outcome
        };
        let outcome = tokio::select! {
            outcome = until_answered => outcome,
            () = clock.sleep(CLOSE_WITHIN) => Err(StoreError::Temporary("no answer before the process ends".to_owned())),
        };
        self.count_calls(returns.len(), (LedgerCall::GaveBack, &outcome));
        if let Err(error) = outcome {
            tracing::warn!("tokens of budgets could not be given back, and count as spent: {error}");
        }
    }
}

async fn take<L: Ledger>(mut ledger: L, call: CallNumber, request: TakeRequest, sent_at: Duration) -> (L, Called) {
    let (mut answers, budget, limit) = ([None], request.budget.clone(), request.limit);
    let outcome = ledger.take(&[request], &mut answers).await;
    let [answer] = answers;
    let answer = match (answer, outcome) {
        (Some(answer), _) => Ok(answer),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(StoreError::Temporary("the ledger gave no answer".to_owned())),
    };
    (ledger, Called::Took { call, budget, limit, sent_at, answer })
}

async fn look<L: Ledger>(mut ledger: L, owed: Vec<Owed>) -> (L, Called) {
    let requests: Vec<TakeRequest> = owed.iter().map(Owed::look).collect();
    let mut answers = vec![None; requests.len()];
    let outcome = ledger.take(&requests, &mut answers).await;
    (ledger, Called::Looked(owed.into_iter().zip(answers).collect(), outcome))
}

async fn charge<L: Ledger>(mut ledger: L, due: Vec<TakeRequest>) -> (L, Called) {
    let mut answers = vec![None; due.len()];
    let outcome = ledger.take(&due, &mut answers).await;
    (ledger, Called::Charged(due.len(), outcome))
}

async fn give_back<L: Ledger>(mut ledger: L, returns: Vec<GiveBack>) -> (L, Called) {
    let outcome = ledger.give_back(&returns).await;
    (ledger, Called::GaveBack(returns, outcome))
}
