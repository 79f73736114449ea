//! In which form a command prints.

use std::{
    borrow::Cow,
    io::{self, Write},
    ops::Range,
};

use anyhow::Context as _;
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// In which form to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputForm {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Standard output. That nobody reads it any more is no failure, and its error says so: a connection that broke is one, and has an error of
/// the same kind.
#[derive(Debug)]
pub struct StandardOutput(pub io::Stdout);

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub(super) struct Unread;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_output)
    }
}

/// An error of standard output.
pub(super) fn of_output(error: io::Error) -> io::Error {
    let kind = error.kind();
    if kind == io::ErrorKind::BrokenPipe { io::Error::new(kind, Unread) } else { error }
}

/// Text of somebody's as a terminal may have it: what would move its cursor or end the line is written as an escape.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control, |letter| letter.escape_default().to_string())
}

/// A text in which some characters are written as `escape` has them.
pub(super) fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let shown = |letter: char| if is_escaped(letter) { escape(letter) } else { letter.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

pub fn print_json(report: &impl Serialize, out: &mut impl Write) -> anyhow::Result<()> {
    // As the error of `out` that it is: a pipe that nobody reads is none of ours.
    serde_json::to_writer_pretty(&mut *out, report).map_err(io::Error::from).context("cannot print")?;
    Ok(writeln!(out)?)
}

/// Rows below one another without lines between them; the `numbers` columns are aligned to the right.
pub fn aligned<R: IntoIterator<Item = String>>(rows: impl IntoIterator<Item = R>, numbers: Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(numbers.start).take(numbers.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The lines of a table, without white space at their ends.
pub fn lines(table: &Table) -> String {
    table.lines().fold(String::new(), |lines, line| lines + line.trim_end() + "\n")
}

/// A progress bar; nothing is drawn where stderr is not a terminal. Without a length, the end is not known.
pub fn progress(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_moves_a_cursor_is_shown_and_not_done() {
        assert_eq!(plain("spr\u{1b}[31mX\r\n\u{9b}A"), "spr\\u{1b}[31mX\\r\\n\\u{9b}A");
        assert_eq!(plain("Grüße, 42"), "Grüße, 42");
    }
}
