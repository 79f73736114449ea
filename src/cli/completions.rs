//! `weir completions`: a script that completes commands and options in a shell.

use std::io::Write;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::command_line::CommandLine;

/// Arguments of `weir completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "In bash: source <(weir completions bash). In zsh, into a folder of $fpath: weir completions zsh > \
                        _weir. In fish: weir completions fish > ~/.config/fish/completions/weir.fish"
)]
pub struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

pub fn run(args: &CompletionsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "weir", &mut script);
    Ok(out.write_all(&script)?)
}
