//! What was found, and how it is printed.

use std::io::Write;

use serde::Serialize;

use crate::cli::output::OutputForm;

/// How a thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Finding {
    Ok,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    finding: Finding,
    what: &'static str,
    message: String,
}

#[derive(Debug, Default)]
pub(super) struct Report(Vec<Line>);

impl Report {
    pub(super) fn add(&mut self, finding: Finding, what: &'static str, message: impl Into<String>) {
        self.0.push(Line { finding, what, message: message.into() });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn errors(&self) -> usize {
        self.0.iter().filter(|line| line.finding == Finding::Error).count()
    }
}

pub(super) fn print(report: &Report, form: OutputForm, out: &mut impl Write) -> anyhow::Result<()> {
    match form {
        OutputForm::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report.0)?)?,
        OutputForm::Text => {
            for Line { finding, what, message } in &report.0 {
                let sign = match finding {
                    Finding::Ok => "ok     ",
                    Finding::Warning => "warning",
                    Finding::Error => "ERROR  ",
                };
                writeln!(out, "{sign}  {what}: {message}")?;
            }
        }
    }
    Ok(())
}
