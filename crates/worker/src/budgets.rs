//! The budgets of a process: one task holds its leases and asks the ledger; lanes and HTTP ask the task.
//!
//! A batch asks once, and the answer is a step of arithmetic: tokens are taken ahead of need. No lane waits for another lane's
//! network call, and none holds a lock.

mod keeper;
mod returns;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Notify, mpsc, oneshot};
use weir_core::{
    decider::{AskedBatch, GatedBatch, Settlement, Unspent},
    lease::{BudgetState, Claim, Claimed, Owed, Ticket},
    record::Records,
    routes::Taken,
};

pub use keeper::BudgetKeeper;

/// Messages that wait for the task, at most; whoever has another one waits.
const QUEUE: usize = 256;

/// What the task is asked.
enum Message {
    /// Tokens for a batch.
    Claim {
        ticket: Ticket,
        claim: Arc<Claim>,
        /// Told when a claim that was pending can be made again.
        wake: Arc<Notify>,
        reply: oneshot::Sender<Claimed>,
    },
    /// Tokens of a batch that were not spent.
    PutBack(Unspent),
    /// What replays owe that took no tokens.
    Charge(Vec<Owed>),
    /// How all budgets stand here.
    States(oneshot::Sender<Vec<BudgetState>>),
    /// Everything goes back to the ledger, and the task ends.
    Close(oneshot::Sender<()>),
}

/// Where lanes and HTTP ask for tokens; clones ask the same task.
#[derive(Clone)]
pub struct Budgets {
    inbox: mpsc::Sender<Message>,
    tickets: Arc<AtomicU64>,
}

impl Budgets {
    /// One who claims: a lane, or a place of HTTP.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        Claimant { inbox: self.inbox.clone(), ticket, wake: Arc::default() }
    }

    /// How all budgets stand here that were claimed lately; none once the task has ended.
    pub async fn states(&self) -> Vec<BudgetState> {
        let (reply, states) = oneshot::channel();
        match self.inbox.send(Message::States(reply)).await {
            Ok(()) => states.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Gives all unspent tokens back, and ends the task: for when nobody claims any more.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.inbox.send(Message::Close(reply)).await.is_ok() {
            // Where the task has ended meanwhile, there is nothing to be given back.
            let _ = closed.await;
        }
    }
}

/// One who claims tokens, one batch at a time.
pub struct Claimant {
    inbox: mpsc::Sender<Message>,
    ticket: Ticket,
    wake: Arc<Notify>,
}

/// The process has no task of budgets any more: it is ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the budgets of this process are closed: it is ending")]
pub struct Closed;

impl Claimant {
    /// Takes what a batch needs, in one step. Where it is pending, its place is reserved: wait for [`Claimant::ready`], judge the
    /// batch again, and claim again.
    ///
    /// # Errors
    /// The process is ending.
    pub async fn claim(&self, claim: Arc<Claim>) -> Result<Claimed, Closed> {
        let (reply, claimed) = oneshot::channel();
        let wake = Arc::clone(&self.wake);
        let message = Message::Claim { ticket: self.ticket, claim, wake, reply };
        self.inbox.send(message).await.map_err(|_| Closed)?;
        claimed.await.map_err(|_| Closed)
    }

    /// Takes what a batch needs, of lanes and HTTP alike. Where it is pending, it is given up: the permits of its records, to be kept until
    /// it is judged again.
    ///
    /// # Errors
    /// The process is ending.
    pub async fn fund<'b, R: Records>(
        &self,
        gated: GatedBatch<'b, R>,
    ) -> Result<Result<AskedBatch<'b, R>, Vec<Taken>>, Closed> {
        let Some(claim) = gated.claim().map(Arc::clone) else { return Ok(Ok(gated.ask(None))) };
        match self.claim(claim).await? {
            Claimed::Answered(answers) => Ok(Ok(gated.ask(Some(answers)))),
            Claimed::Pending => Ok(Err(gated.give_up())),
        }
    }

    /// Puts back what a batch did not spend, and has the ledger count what its replays owe. Gives its permits.
    ///
    /// # Errors
    /// The process is ending: the tokens count as spent.
    pub async fn settle(&self, settlement: Settlement) -> Result<Vec<Taken>, Closed> {
        let Settlement { unspent, owed, permits } = settlement;
        self.put_back(unspent).await?;
        self.charge(owed).await?;
        Ok(permits)
    }

    /// Done when a claim that was pending can be made again.
    pub async fn ready(&self) {
        self.wake.notified().await;
    }

    /// Gives tokens back that were not spent; where the process is ending, they count as spent.
    async fn put_back(&self, tokens: Unspent) -> Result<(), Closed> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.inbox.send(Message::PutBack(tokens)).await.map_err(|_| Closed)
    }

    /// Has the ledger count what replays owe that took no tokens, where it has not counted them.
    async fn charge(&self, owed: Vec<Owed>) -> Result<(), Closed> {
        if owed.is_empty() {
            return Ok(());
        }
        self.inbox.send(Message::Charge(owed)).await.map_err(|_| Closed)
    }
}
