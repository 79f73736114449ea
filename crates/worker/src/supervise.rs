//! Lanes on their threads, from the first to the last.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::lane::LaneError;

/// What one lane does from start to end, dropping its ends (and so leaving the group) before it returns.
pub type LaneWork = Box<dyn FnOnce() -> Result<(), LaneError> + Send>;

/// Does the work of a lane; one that panics has failed.
pub(crate) fn to_its_end(work: LaneWork) -> Result<(), LaneError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(LaneError::Fatal("a bug in weir ended it (the panic is in the log above); please report it".to_owned()))
    })
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A lane could not go on; the others were stopped.
    #[error("lane {lane}: {message}")]
    Lane {
        lane: usize,
        /// Why, and what to do.
        message: String,
    },
    /// The lanes did not end in time; nothing is lost, what was not committed is decided again.
    #[error("{lanes} lanes did not finish within worker.drain ({} s): what they had not committed is decided again by whoever reads it next", drain.as_secs())]
    Drain { lanes: usize, drain: Duration },
    /// The system gave no thread.
    #[error("no thread for lane {lane}: {error}")]
    Thread { lane: usize, error: std::io::Error },
}

/// Runs lanes until `asked_to_stop` is done or one of them fails, then gives all of them `drain` to end.
pub async fn supervise(
    lanes: Vec<LaneWork>,
    stop: &CancellationToken,
    asked_to_stop: impl Future<Output = ()>,
    drain: Duration,
) -> Result<(), WorkerError> {
    let mut running = lanes.len();
    let (ended, mut ends) = mpsc::channel(running.max(1));
    for (lane, work) in lanes.into_iter().enumerate() {
        let ended = ended.clone();
        let spawned = thread::Builder::new().name(format!("lane-{lane}")).spawn(move || {
            let end = to_its_end(work);
            // The receiver is gone when the drain took too long: then nobody waits for the news.
            let _ = ended.blocking_send((lane, end));
        });
        if let Err(error) = spawned {
            stop.cancel();
            return Err(WorkerError::Thread { lane, error });
        }
    }
    drop(ended);

    let mut first_failure = None;
    let mut note = |lane, end: Result<(), LaneError>| {
        if let Err(LaneError::Fatal(message)) = end {
            tracing::error!(lane, "{message}");
            first_failure.get_or_insert(WorkerError::Lane { lane, message });
        }
    };
    tokio::select! {
        () = asked_to_stop => tracing::info!("asked to stop: finishing what is decided"),
        Some((lane, end)) = ends.recv() => {
            running -= 1;
            note(lane, end);
        }
    }
    stop.cancel();
    let all_ended = timeout(drain, async {
        while let Some((lane, end)) = ends.recv().await {
            running -= 1;
            note(lane, end);
        }
    });
    let in_time = all_ended.await.is_ok();
    match first_failure {
        Some(failure) => Err(failure),
        None if !in_time => Err(WorkerError::Drain { lanes: running, drain }),
        None => Ok(()),
    }
}
