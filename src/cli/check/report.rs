//! What was found, and how it is printed.

use std::io::Write;

use serde::Serialize;

use crate::cli::{
    exit::UsageError,
    output::{OutputForm, print_json},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Finding {
    Ok,
    Skipped,
    /// It works, but should be changed.
    Warning,
    /// A server cannot be reached, or is not as required: exit code 1.
    Error,
    /// A file is written incorrectly: exit code 2.
    Invalid,
}

#[derive(Debug, Serialize)]
pub(super) struct CheckLine {
    finding: Finding,
    what: &'static str,
    message: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    repair: Option<Repair>,
}

/// A topic's setting that is not as required, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Repair {
    pub(super) topic: String,
    pub(super) setting: &'static str,
    pub(super) value: String,
    pub(super) required: String,
    pub(super) command: String,
}

/// All that was looked at, in the order in which weir needs it: files before servers.
#[derive(Debug, Default)]
pub(super) struct CheckReport(Vec<CheckLine>);

impl CheckReport {
    pub(super) fn add(&mut self, finding: Finding, what: &'static str, message: impl Into<String>) {
        self.0.push(CheckLine { finding, what, message: message.into(), repair: None });
    }

    pub(super) fn add_repair(&mut self, what: &'static str, message: String, repair: Repair) {
        self.0.push(CheckLine { finding: Finding::Error, what, message, repair: Some(repair) });
    }

    /// Decides over the exit code: [`UsageError`] where a file is written incorrectly, another error where a server is not as it has to be.
    pub(super) fn outcome(&self) -> anyhow::Result<()> {
        let wrong: Vec<&CheckLine> =
            self.0.iter().filter(|line| matches!(line.finding, Finding::Error | Finding::Invalid)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let mut subjects: Vec<&str> = wrong.iter().map(|line| line.what).collect();
        subjects.dedup();
        let all = self.0.len();
        let message = format!("{} of {all} checks failed ({}); see above", wrong.len(), subjects.join(", "));
        if wrong.iter().any(|line| line.finding == Finding::Invalid) {
            return Err(UsageError(message).into());
        }
        Err(anyhow::Error::msg(message))
    }

    pub(super) fn print(&self, form: OutputForm, out: &mut impl Write) -> anyhow::Result<()> {
        match form {
            OutputForm::Json => print_json(&self.0, out)?,
            OutputForm::Text => {
                for CheckLine { finding, what, message, .. } in &self.0 {
                    let sign = match finding {
                        Finding::Ok => "ok     ",
                        Finding::Skipped => "skipped",
                        Finding::Warning => "warning",
                        Finding::Error => "ERROR  ",
                        Finding::Invalid => "INVALID",
                    };
                    writeln!(out, "{sign}  {what}: {message}")?;
                }
            }
        }
        Ok(())
    }
}
