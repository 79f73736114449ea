//! From an error to a paragraph on stderr and an exit code: 1 failed at run time, 2 wrong usage or configuration.

use std::io::{self, Write as _};

use super::output::{Unread, escaped};

/// Wrong usage or configuration: the user has to correct something. Exit code 2, where everything else that fails is 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A [`UsageError`] among errors of other kinds.
pub fn invalid(message: String) -> anyhow::Error {
    UsageError(message).into()
}

pub const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG: u8 = 2;

/// Says what went wrong, and gives the exit code for it.
#[must_use]
pub fn report(error: &anyhow::Error) -> u8 {
    // Nobody reads on (`weir segments members ... | head`): that is no error of ours.
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref());
    if causes.any(|cause| cause.is::<Unread>()) {
        return DONE;
    }
    // Where stderr is closed, the exit code has to do.
    let _ = writeln!(io::stderr(), "{}", paragraph(error));
    if error.is::<UsageError>() { WRONG } else { FAILED }
}

/// The message of an error. It may quote what others wrote, so control characters are escaped; line breaks stay, because an error in a file shows
/// its lines.
fn paragraph(error: &anyhow::Error) -> String {
    let is_escaped = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    escaped(&format!("weir: {error:#}"), is_escaped, |letter| letter.escape_default().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::of_output;

    #[test]
    fn a_pipe_that_breaks_is_a_failure_unless_it_is_the_output_that_nobody_reads() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        // As `weir health` has it where the worker ends meanwhile: an exit code of 0 would say that it is alive.
        let connection = anyhow::Error::new(broken()).context("http://127.0.0.1:8080/livez: no answer");
        assert_eq!(report(&connection), FAILED);
        let output = anyhow::Error::new(of_output(broken())).context("cannot print");
        assert_eq!(report(&output), DONE);
        // A full disk, for example.
        let other = of_output(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(report(&anyhow::Error::new(other).context("cannot print")), FAILED);
    }

    #[test]
    fn an_error_shows_lines_and_moves_no_cursor() {
        let error = anyhow::anyhow!("budget a\u{1b}[2J\r").context("policy.toml\n  | x");
        assert_eq!(paragraph(&error), "weir: policy.toml\n  | x: budget a\\u{1b}[2J\\r");
    }
}
