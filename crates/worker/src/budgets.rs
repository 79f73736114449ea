//! The budgets of a process: one task holds its leases and asks the ledger; lanes and HTTP ask the task.
//!
//! A batch asks once, and the answer is a step of arithmetic: tokens are taken ahead of need. No lane waits for another lane's
//! network call, and none holds a lock.
//!
//! invariant: what is not spent of a claim comes back, whatever becomes of the one who claimed it: also where an answer is not heard. What
//! comes back is taken before the next claim is answered, so it never waits for more than a few batches of each claimant.

mod keeper;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Notify, mpsc, oneshot};
use weir_core::{
    batch::{
        decider::{AskedBatch, GatedBatch, KeptLimits},
        record::Records,
    },
    limit::budget::lease::{BudgetState, Claim, Funded, Ticket},
};

pub use keeper::BudgetKeeper;

/// Messages that wait for the task, at most; whoever has another one waits.
const QUEUE: usize = 256;

enum Message {
    Claim {
        ticket: Ticket,
        /// The claimant gives up the batch that it claimed for before, if that is pending.
        is_new: bool,
        claim: Arc<Claim>,
        /// Told when a claim that was pending can be made again.
        wake: Arc<Notify>,
        /// What it was granted; `None`: it is pending.
        reply: oneshot::Sender<Option<Funded>>,
    },
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
    /// Asks for what a batch needs, which may be a new one; `None`: it is pending.
    async fn ask_for(&self, is_new: bool, claim: Arc<Claim>) -> Result<Option<Funded>, Closed> {
        let (reply, funded) = oneshot::channel();
        let wake = Arc::clone(&self.wake);
        let message = Message::Claim { ticket: self.ticket, is_new, claim, wake, reply };
        self.inbox.send(message).await.map_err(|_| Closed)?;
        funded.await.map_err(|_| Closed)
    }

    /// Takes what a batch needs in one step, of lanes and HTTP alike. Where it is pending, its place is reserved, and it is given up: what
    /// it keeps until it is judged again, once [`Claimant::ready`] is done. `has_claimed`: whether the same batch has claimed before; where it has not,
    /// what another one was answered, and has reserved, is void.
    ///
    /// # Errors
    /// The process is ending.
    pub async fn fund<'b, R: Records>(
        &self,
        gated: GatedBatch<'b, R>,
        has_claimed: &mut bool,
    ) -> Result<Result<AskedBatch<'b, R>, KeptLimits>, Closed> {
        let Some(claim) = gated.claim().map(Arc::clone) else { return Ok(Ok(gated.ask(None))) };
        let is_new = !std::mem::replace(has_claimed, true);
        Ok(match self.ask_for(is_new, claim).await? {
            Some(funded) => Ok(gated.ask(Some(funded))),
            None => Err(gated.give_up()),
        })
    }

    /// Done when a claim that was pending can be made again.
    pub async fn ready(&self) {
        self.wake.notified().await;
    }
}
