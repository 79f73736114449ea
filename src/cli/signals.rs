//! SIGTERM and SIGINT: the first one asks to stop, a second one ends the process at once.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_kafka::native;

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Exit codes, as a shell gives them for these signals: 128 + their number.
const TERMINATED: u8 = 143;
const INTERRUPTED: u8 = 130;

impl Signals {
    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM, by whoever runs weir: requests may still come.
    Terminate,
    /// SIGINT, by Ctrl-C: somebody waits.
    Interrupt,
}

/// Done at the first SIGTERM or SIGINT. From then on, another one ends the process at once: what is not committed by then is
/// decided again.
pub fn asked_to_stop() -> anyhow::Result<impl Future<Output = Asked>> {
    let mut signals = Signals {
        terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
    };
    Ok(async move {
        let asked = signals.next().await;
        tokio::spawn(end_at_next(signals));
        asked
    })
}

async fn end_at_next(mut signals: Signals) {
    let code = match signals.next().await {
        Asked::Terminate => TERMINATED,
        Asked::Interrupt => INTERRUPTED,
    };
    tracing::warn!(
        "a second signal: weir ends at once; intents that are read but not committed are decided again at the next start, \
         or by another instance"
    );
    native::leave(code);
}
