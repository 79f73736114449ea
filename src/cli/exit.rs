//! From an error to a paragraph on stderr and an exit code: 1 failed at run time, 2 wrong usage or configuration.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use super::{assemble::Misconfigured, plan::InvalidPlan, policy::InvalidPolicy, segments::InvalidInput};

/// Failed at run time.
const FAILED: u8 = 1;
/// Wrong usage or configuration.
const WRONG: u8 = 2;

/// Says what went wrong, and gives the exit code for it.
#[must_use]
pub fn report(error: &anyhow::Error) -> ExitCode {
    // Nobody reads on (`weir segments members ... | head`): that is no error of ours.
    if error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
    {
        return ExitCode::SUCCESS;
    }
    // Where stderr is closed, the exit code has to do.
    let _ = writeln!(io::stderr(), "weir: {error:#}");
    let wrong = error.is::<Misconfigured>()
        || error.is::<InvalidPolicy>()
        || error.is::<InvalidInput>()
        || error.is::<InvalidPlan>();
    ExitCode::from(if wrong { WRONG } else { FAILED })
}
