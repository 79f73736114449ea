//! `weir config`: the settings in force.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::{
    args::ConfigFile,
    exit::UsageError,
    output::{OutputForm, aligned, lines, plain, print_json},
};
use crate::config::{self, Effective, Source};

/// `weir config ...`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting in force, and where it comes from: default, file or environment variable. Secrets are masked
    Show(ShowArgs),
}

/// Arguments of `weir config show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

#[derive(Debug, Serialize)]
struct SettingRow<'s> {
    setting: &'s str,
    value: &'s Value,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'s str>,
}

pub fn run(command: &ConfigCommand, out: &mut impl Write) -> anyhow::Result<()> {
    let ConfigCommand::Show(args) = command;
    let settings = config::effective(&args.config.path).map_err(|error| UsageError(error.to_string()))?;
    match args.output {
        OutputForm::Json => print_json(&settings.iter().map(row).collect::<Vec<_>>(), out),
        OutputForm::Text => {
            let row = |setting: &Effective| {
                let row = row(setting);
                [setting.setting.clone(), in_text(setting), row.place.unwrap_or(row.source).to_owned()]
            };
            Ok(write!(out, "{}", lines(&aligned(settings.iter().map(row), 0..0)))?)
        }
    }
}

fn row(setting: &Effective) -> SettingRow<'_> {
    let (source, place) = match &setting.source {
        Source::Default => ("default", None),
        Source::File(place) => ("file", Some(place.as_str())),
        Source::Variable(name) => ("variable", Some(name.as_str())),
    };
    SettingRow { setting: &setting.setting, value: &setting.value, source, place }
}

fn in_text(setting: &Effective) -> String {
    let one = |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| plain(text).into_owned());
    match &setting.value {
        Value::Null => format!("({})", setting.unset),
        Value::Array(items) => items.iter().map(one).collect::<Vec<_>>().join(", "),
        value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => one(value),
    }
}
