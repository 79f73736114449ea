//! Logs: text on a terminal, JSON otherwise.

use std::io::IsTerminal;

use crate::config::{LogFormat, LogSettings, check_log_filter};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Checks a filter that the command line gives.
///
/// # Errors
/// It is none.
pub fn filter(text: &str) -> Result<String, String> {
    check_log_filter(text).map(|()| text.to_owned())
}

/// Sends logs to stderr, filtered by `level` (the command line's), else by `log.level`.
///
/// # Errors
/// The filter is none.
pub fn start(settings: &LogSettings, level: Option<&str>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level.unwrap_or(&settings.level))?;
    // It warns of a schema, which others write, with the whole of it.
    let filter = filter.add_directive("apache_avro=off".parse()?);
    let text = match settings.format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (tests run several workers in one process) keeps the first. A log that cannot be written, because nobody reads
    // stderr any more, is no reason to panic, as a message about it on stderr would.
    let _ = if text {
        let ansi = std::io::stderr().is_terminal();
        let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(ansi).with_target(false);
        registry.with(layer.log_internal_errors(false)).try_init()
    } else {
        let layer = fmt::layer().json().flatten_event(true).with_thread_names(true).with_writer(std::io::stderr);
        registry.with(layer.log_internal_errors(false)).try_init()
    };
    Ok(())
}
