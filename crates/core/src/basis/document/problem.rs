//! What is wrong with a document, and where.

use super::Origin;

/// One thing that is wrong: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    order: usize,
    place: String,
    message: String,
}

impl Problem {
    pub(super) fn new(name: &str, text: &str, origin: &Origin, message: String) -> Self {
        match origin {
            Origin::Text(byte) => {
                let (line, column) = line_and_column(text, *byte);
                Self { order: *byte, place: format!("{name}:{line}:{column}"), message }
            }
            Origin::Variable(variable) => {
                Self { order: usize::MAX, place: format!("environment variable {variable}"), message }
            }
        }
    }

    /// Where: `policy.toml:4:9`, or an environment variable.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Line and column, from 1, of a byte; columns count characters.
fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let byte = (0..=byte.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let before = &text[..byte];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// All that is wrong with a document, by place; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub fn all(&self) -> &[Problem] {
        &self.0
    }
}

/// One problem a line, 20 at most.
impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 20;
        let lines: Vec<String> = self.0.iter().take(SHOWN).map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}
