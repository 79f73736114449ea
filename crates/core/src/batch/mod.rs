//! A batch: records come in, are decided together, and go out.

pub mod decider;
pub mod letter;
pub mod moving;
pub mod output;
pub mod record;
pub mod retry;
pub mod sizes;
pub mod stamps;
pub mod tally;
#[cfg(test)]
mod tests;
