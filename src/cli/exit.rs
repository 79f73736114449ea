//! From an error to a paragraph on stderr and an exit code: 1 failed at run time, 2 wrong usage or configuration.

use std::io::{self, Write as _};

/// Wrong usage or configuration: the user has to correct something. Exit code 2, where everything else that fails is 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

pub const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG: u8 = 2;

/// Says what went wrong, and gives the exit code for it.
#[must_use]
pub fn report(error: &anyhow::Error) -> u8 {
    // Nobody reads on (`weir segments members ... | head`): that is no error of ours.
    if error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
    {
        return DONE;
    }
    // Where stderr is closed, the exit code has to do.
    let _ = writeln!(io::stderr(), "weir: {error:#}");
    if error.is::<UsageError>() { WRONG } else { FAILED }
}
