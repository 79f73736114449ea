//! In which form a command prints.

use std::borrow::Cow;

use clap::ValueEnum;

/// In which form to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputForm {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Text of somebody's as a terminal may have it: what would move its cursor or end the line is written as an escape.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let shown =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
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
