//! The task that holds a process's leases.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc},
    task::{JoinError, JoinSet},
};
use weir_core::{
    limit::{
        budget::{
            lease::{Claimed, Due, DueTurn, Funded, Leases, Lender, Refused, Settling, Ticket},
            ledger::{BudgetTokens, TakeAnswer},
        },
        share::{ANSWER_WITHIN, Clients, answer_within, is_overtaken},
    },
    ports::{Clock, Share, StoreError},
};

use super::{Budgets, Message, QUEUE};
use crate::{
    observer::{LedgerCall, Observer},
    share::{CLOSE_WITHIN, before_first},
};

/// Budgets that hold a lease at once in a process, at most; beyond that the one that was claimed least lately gives its lease back.
const MOST_BUDGETS: usize = 10_000;

/// Holds the leases, answers claims from them, and asks the ledger ahead of need.
pub struct BudgetKeeper<L, C> {
    leases: Leases,
    clients: Clients<L>,
    clock: C,
    observer: Arc<dyn Observer>,
    inbox: mpsc::Receiver<Message>,
    /// What comes back by itself, and to whom that is told. Where this task has ended, tokens count as spent.
    settled: mpsc::UnboundedReceiver<Settling>,
    pub(super) lender: Lender,
    /// Whom to wake whose claims were pending.
    pending: BTreeMap<Ticket, Arc<Notify>>,
    calls: JoinSet<(L, TurnMade)>,
}

/// What came of a turn that was sent then.
struct TurnMade {
    due: DueTurn,
    sent_at: Duration,
    answer: Result<TakeAnswer, StoreError>,
}

impl<L, C> BudgetKeeper<L, C>
where
    L: Share<BudgetTokens> + 'static,
    C: Clock + Clone + 'static,
{
    /// The task, to be run, and where it is asked. `connect` makes what asks the ledger, for one call at a time.
    pub fn new(connect: impl Fn() -> L + Send + 'static, clock: C, observer: Arc<dyn Observer>) -> (Self, Budgets) {
        let (sender, inbox) = mpsc::channel(QUEUE);
        let (settles, settled) = mpsc::unbounded_channel();
        let lender: Lender = Arc::new(move |settling| drop(settles.send(settling)));
        let (leases, clients) = (Leases::new(MOST_BUDGETS), Clients::new(connect));
        let (pending, calls) = (BTreeMap::new(), JoinSet::new());
        let keeper = Self { leases, clients, clock, observer, inbox, settled, lender, pending, calls };
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
                Some(called) = self.calls.join_next() => self.take_answers(called),
                Some(settling) = self.settled.recv() => self.leases.settle(settling, self.clock.passed()),
                message = self.inbox.recv() => match message {
                    Some(Message::Claim { ticket, is_new, claim, wake, reply }) => {
                        // What came back before the claim was made is taken first: it may have come after the look above.
                        self.settle_all();
                        if is_new {
                            self.leases.cancel(ticket);
                        }
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
                        let _ = reply.send(self.leases.states());
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

    /// Makes the turns that are due; gives when to look again, if nothing happens before.
    fn call_ledger(&mut self) -> Option<Duration> {
        let sent_at = self.clock.passed();
        let Due { turns, next_at } = self.leases.due(sent_at, || before_first(&self.clock));
        for due in turns {
            let (mut ledger, clock) = (self.clients.take(), self.clock.clone());
            self.calls.spawn(async move {
                let turn = ledger.turn(&due.budget, due.number, &due.turn);
                let answer = answer_within(&clock, ANSWER_WITHIN, turn).await;
                (ledger, TurnMade { due, sent_at, answer })
            });
        }
        next_at
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

    /// Takes the answers of all turns that are done: what is due is looked for once.
    fn take_answers(&mut self, first: Result<(L, TurnMade), JoinError>) {
        let mut next = Some(first);
        while let Some(called) = next {
            // If a turn panics, this task ends, too: its budget would never be asked again, and nobody would notice.
            let (ledger, called) = called.expect("no turn panics");
            self.clients.put_back(ledger);
            self.called(called);
            next = self.calls.try_join_next();
        }
    }

    fn called(&mut self, TurnMade { due: DueTurn { call, budget, turn, .. }, sent_at, answer }: TurnMade) {
        let asks = turn.want > 0;
        if let Err(error) = &answer
            && is_overtaken(error)
        {
            tracing::warn!(budget = &*budget.name, "{error}. What it gave back counts as spent");
            self.observer.ledger_called(LedgerCall::Failed);
            return self.leases.overtaken(call, before_first(&self.clock).run);
        }
        let answer = answer.map_err(|error| {
            tracing::warn!(budget = &*budget.name, "the budget has no answer, and is asked again: {error}");
            Refused
        });
        self.observer.ledger_called(match answer {
            Ok(_) if asks => LedgerCall::Took,
            Ok(_) => LedgerCall::GaveBack,
            Err(Refused) => LedgerCall::Failed,
        });
        if let (true, Ok(answer)) = (asks, &answer) {
            self.observer.budget_left(&budget, turn.limit.saturating_sub(answer.used));
        }
        self.leases.answered(call, answer, sent_at, self.clock.passed());
    }

    /// Gives back what is left, and has counted what replays owe.
    async fn close(mut self) {
        let until = self.clock.passed() + CLOSE_WITHIN;
        self.settle_all();
        self.leases.close(self.clock.passed());
        loop {
            self.settle_all();
            let next_at = self.call_ledger().map_or(until, |at| at.min(until));
            if self.leases.is_settled() {
                return;
            }
            let now = self.clock.passed();
            if now >= until {
                break;
            }
            // A node that hangs keeps nothing back that another one has granted.
            tokio::select! {
                biased;
                Some(called) = self.calls.join_next() => self.take_answers(called),
                () = self.clock.sleep(next_at.saturating_sub(now)) => {}
            }
        }
        tracing::warn!(
            "the process ends before its budgets have answered: tokens that are left count as spent, and what replays owe may come on top"
        );
    }

    /// What has come back by now.
    fn settle_all(&mut self) {
        while let Ok(settling) = self.settled.try_recv() {
            self.leases.settle(settling, self.clock.passed());
        }
    }
}
