//! From one batch to the next: each is taken while the one before is being committed, and handed over once it is.

use std::time::Duration;

use weir_core::{
    batch::record::{Job, Output},
    ports::{Clock as _, Sink as _, Source},
};

use super::{Ends, GroupLoop, Interruption, Iteration, LoopState};

type BatchOf<W> = <<W as GroupLoop>::Source as Source>::Batch;
type JobOf<W> = Job<BatchOf<W>, <<W as GroupLoop>::Source as Source>::Membership>;

/// How long after a commit an idle member commits ends: each such commit costs the brokers as much as that of a batch.
pub(super) const COMMIT_ENDS_AFTER: Duration = Duration::from_secs(1);

/// Takes batches and hands them over until something interrupts.
pub(super) async fn run<W: GroupLoop>(work: &mut W, state: &mut W::State) -> Result<(), Interruption> {
    loop {
        let Ends { clock, stop, status, .. } = work.ends();
        if stop.is_cancelled() {
            return Err(Interruption::Stop);
        }
        status.progressed(clock.passed());
        match work.take(state).await? {
            Iteration::Rested => {}
            Iteration::Idle => {
                if work.poll_commit(state, Duration::ZERO).await? {
                    commit_ends(work, state).await?;
                }
                work.show_lag(state, true);
            }
            Iteration::Took(batch, outputs, taken) => hand_over(work, state, (batch, outputs, taken)).await?,
        }
    }
}

/// Hands a batch over to be committed, once the one before is and if the group is the same.
async fn hand_over<W: GroupLoop>(
    work: &mut W,
    state: &mut W::State,
    (records, outputs, mut taken): (BatchOf<W>, Vec<Output>, W::Taken),
) -> Result<(), Interruption> {
    work.await_commit(state).await?;
    work.serve().await?;
    let source = work.ends().source;
    let membership = source.membership()?;
    let progress = W::group(state).committed.brought_by(&records, source.ends_read());
    work.handing_over(state, &mut taken)?;
    submit(work, state, taken, Job { records, outputs, progress, membership });
    Ok(())
}

/// Commits the ends of partitions behind which nothing but offsets without a record is left to read: they look like records that are
/// not done. To be called when nothing that was read is not committed. Not at once: the next batch has them, if it comes soon.
async fn commit_ends<W: GroupLoop>(work: &mut W, state: &mut W::State) -> Result<(), Interruption> {
    let Ends { source, clock, .. } = work.ends();
    let LoopState { ends_due, committed, .. } = W::group(state);
    if clock.passed() < *ends_due {
        return Ok(());
    }
    let progress = committed.not_committed(source.ends_read());
    if progress.is_empty() {
        return Ok(());
    }
    work.serve().await?;
    let source = work.ends().source;
    let (records, membership) = (source.batch(), source.membership()?);
    submit(work, state, W::Taken::default(), Job { records, outputs: Vec::new(), progress, membership });
    Ok(())
}

fn submit<W: GroupLoop>(work: &mut W, state: &mut W::State, taken: W::Taken, job: JobOf<W>) {
    let group = W::group(state);
    group.committed.handed_over(&job);
    group.in_flight = taken;
    work.ends().sink.submit(job);
}
