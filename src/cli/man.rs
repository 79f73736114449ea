//! `weir man`: the man pages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::command_line::CommandLine;

/// Arguments of `weir man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages: weir.1, and one for each command; it is created if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a page for weir and one for each command.
pub fn run(args: &ManArgs) -> anyhow::Result<()> {
    let folder = &args.folder;
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(CommandLine::command().disable_help_subcommand(true), folder));
    written.with_context(|| {
        format!("{}: the man pages cannot be written; check the folder and its rights", folder.display())
    })
}
