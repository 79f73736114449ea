//! Logs: text on a terminal, JSON otherwise.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends logs to stderr. `level` is a filter as tracing knows it (`info`, `weir=debug,info`); `RUST_LOG` goes before it.
///
/// # Errors
/// The filter is none.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) => EnvFilter::try_new(filter)?,
        Err(_) => EnvFilter::try_new(level)?,
    };
    let text = match format {
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
