//! The command line of weir: one verb, one exit code.

#![recursion_limit = "256"]
#![forbid(unsafe_code)]

use std::io::{self, Write as _};

use clap::Parser;
use weir::{
    cli::{
        self,
        command_line::{CommandLine, Verb},
        output::StandardOutput,
    },
    config::{LogFormat, LogSettings},
};
// Linked for the functions that the build script puts before librdkafka's decoders.
use weir_inflate as _;
use weir_kafka::native;

fn main() {
    native::allocator::prepare();
    let CommandLine { verb, log_level } = CommandLine::parse();
    cli::time_zones::prefer();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            native::leave(cli::exit::report(&anyhow::Error::new(error).context("the runtime does not start")));
        }
    };
    let outcome = runtime.block_on(act(verb, log_level));
    // What still hangs in a blocking call must not keep the process.
    runtime.shutdown_background();
    let code = match outcome {
        Ok(()) => cli::exit::DONE,
        Err(error) => cli::exit::report(&error),
    };
    // Whoever read it is gone, or has it all.
    let _ = io::stdout().flush();
    native::leave(code);
}

// Each verb's future is boxed: nested in one another, the SDK's are too deep for the compiler to lay out.
async fn act(verb: Verb, log_level: Option<String>) -> anyhow::Result<()> {
    let mut out = StandardOutput(io::stdout());
    // `run` starts its log by its settings.
    if let (Some(level), false) = (&log_level, matches!(verb, Verb::Run(_))) {
        cli::logging::start(&LogSettings { format: LogFormat::Auto, level: level.clone() }, None)?;
    }
    match verb {
        Verb::Run(args) => Box::pin(cli::run::run(&args, log_level.as_deref())).await,
        Verb::Demo(args) => Box::pin(cli::demo::run(&args, &mut out)).await,
        Verb::Check(args) => Box::pin(cli::check::run(&args, &mut out)).await,
        Verb::Health(args) => Box::pin(cli::health::run(&args, &mut out)).await,
        Verb::Config(command) => cli::config::run(&command, &mut out),
        Verb::Rebuild(args) => Box::pin(cli::rebuild::run(&args, &mut out)).await,
        Verb::Segments(command) => Box::pin(cli::segments::run(&command, &mut out)).await,
        Verb::Explain(args) => Box::pin(cli::explain::run(&args, &mut out)).await,
        Verb::Forget(args) => Box::pin(cli::forget::run(&args, &mut out)).await,
        Verb::Policy(command) => Box::pin(cli::policy::run(&command, &mut out)).await,
        Verb::Plan(args) => cli::plan::run(&args, &mut out),
        Verb::Completions(args) => cli::completions::run(&args, &mut out),
        Verb::Man(args) => cli::man::run(&args),
    }
}
