//! Logs: text on a terminal, JSON otherwise.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use super::output::{escaped, plain};
use crate::config::{LogFormat, LogSettings};

/// Sends logs to stderr, filtered by `level` (the command line's), else by `log.level`.
pub fn start(settings: &LogSettings, level: Option<&str>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level.unwrap_or(&settings.level))?;
    // It warns of a schema, which others write, with the whole of it.
    let filter = filter.add_directive("apache_avro=off".parse()?);
    let is_terminal = io::stderr().is_terminal();
    let form = match (settings.format, is_terminal) {
        (LogFormat::Auto | LogFormat::Text, true) => LogForm::Coloured,
        (LogFormat::Text, false) => LogForm::Text,
        (LogFormat::Auto, false) | (LogFormat::Json, _) => LogForm::Json,
    };
    let writer = move || Lines { form, to: io::stderr() };
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (tests run several workers in one process) keeps the first. A log that cannot be written, because nobody reads
    // stderr any more, is no reason to panic, as a message about it on stderr would.
    let _ = if form == LogForm::Json {
        let layer = fmt::layer().json().flatten_event(true).with_thread_names(true).with_writer(writer);
        registry.with(layer.log_internal_errors(false)).try_init()
    } else {
        let layer = fmt::layer().with_writer(writer).with_ansi(is_terminal).with_target(false);
        registry.with(layer.log_internal_errors(false)).try_init()
    };
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogForm {
    Text,
    /// For people at a terminal: the library writes colours, and escapes what values have of such.
    Coloured,
    Json,
}

/// Writes each event as one line. What is in it came from others: a campaign's name with a line break would begin a line of its own.
struct Lines<W> {
    form: LogForm,
    to: W,
}

impl<W: Write> Write for Lines<W> {
    /// The library gives an event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = one_line(text.strip_suffix('\n').unwrap_or(&text), self.form);
        self.to.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A line without control characters but those of colours.
fn one_line(line: &str, form: LogForm) -> Cow<'_, str> {
    match form {
        LogForm::Text => plain(line),
        LogForm::Coloured => {
            let is_escaped = |letter: char| letter.is_control() && letter != '\u{1b}';
            escaped(line, is_escaped, |letter| letter.escape_default().to_string())
        }
        // Within a string, where alone a control character can be.
        LogForm::Json => escaped(line, char::is_control, |letter| format!("\\u{:04x}", u32::from(letter))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tracing::subscriber::with_default;

    use super::*;

    fn written(form: LogForm, event: &str) -> String {
        let mut lines = Lines { form, to: Vec::new() };
        lines.write_all(event.as_bytes()).unwrap();
        String::from_utf8(lines.to).unwrap()
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let name = "spring\nERROR forged\r\t\u{7f}\u{9b}31m";
        let shown = "spring\\nERROR forged\\r\\t\\u{7f}\\u{9b}31m";
        assert_eq!(written(LogForm::Text, &format!("INFO {name}\n")), format!("INFO {shown}\n"));
        let coloured = written(LogForm::Coloured, &format!("\u{1b}[32mINFO\u{1b}[0m {name}\n"));
        assert_eq!(coloured, format!("\u{1b}[32mINFO\u{1b}[0m {shown}\n"));
        assert_eq!(written(LogForm::Text, "\u{1b}[2J\n"), "\\u{1b}[2J\n");

        let event = serde_json::json!({"campaign": name});
        let json = written(LogForm::Json, &format!("{event}\n"));
        assert!(!json.trim_end_matches('\n').contains(char::is_control), "{json:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), event, "it means the same");
        assert_eq!(written(LogForm::Text, "Grüße, 42\n"), "Grüße, 42\n");
    }

    #[test]
    fn the_library_writes_an_event_in_one_call() {
        struct Sent(Sender<Vec<u8>>);
        impl Write for Sent {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (to, seen) = channel();
        let lines = |form, to: Sender<Vec<u8>>| move || Lines { form, to: Sent(to.clone()) };
        let plain = fmt::layer().with_ansi(false).with_writer(lines(LogForm::Text, to.clone()));
        let for_programs = fmt::layer().json().with_writer(lines(LogForm::Json, to));
        with_default(tracing_subscriber::registry().with(plain).with(for_programs), || {
            tracing::warn!(campaign = "one\ntwo", "three\n{}", "four");
        });
        let all: Vec<Vec<u8>> = seen.try_iter().collect();
        assert_eq!(all.len(), 2, "{all:?}");
        for line in all {
            let line = String::from_utf8(line).unwrap();
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1 && line.contains("three"), "{line:?}");
        }
    }
}
