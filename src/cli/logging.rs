//! Logs: text on a terminal, JSON otherwise.

use std::io::IsTerminal;

use crate::config::{LogFormat, LogSettings};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Sends logs to stderr. `log.level` is a filter as tracing knows it (`info`, `weir=debug,info`); `RUST_LOG` goes before it.
///
/// # Errors
/// The filter is none.
pub fn start(settings: &LogSettings) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) => EnvFilter::try_new(filter)?,
        Err(_) => EnvFilter::try_new(&settings.level)?,
    };
    let text = match settings.format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (tests run several workers in one process) keeps the first.
    let _ = if text {
        let ansi = std::io::stderr().is_terminal();
        registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(ansi).with_target(false)).try_init()
    } else {
        let layer = fmt::layer().json().flatten_event(true).with_thread_names(true).with_writer(std::io::stderr);
        registry.with(layer).try_init()
    };
    Ok(())
}
