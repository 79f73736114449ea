//! In which form a command prints.

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
