//! The command line of weir: one verb, one exit code.

#![recursion_limit = "256"]
#![forbid(unsafe_code)]

use std::io::{self, Write as _};

use clap::{Parser, Subcommand};
use weir::cli;
// Linked for the functions that the build script puts before librdkafka's decoders.
use weir_inflate as _;
use weir_kafka::native;

/// Frequency caps for marketing messages: send-intents in from Kafka, approved and suppressed ones out
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run everything on this machine with nothing installed: traffic, decisions, a summary
    Demo(cli::demo::DemoArgs),
    /// Run the worker
    Run(cli::run::RunArgs),
    /// Read everything, connect to everything, change nothing; report what is wrong and what to do
    Check(cli::check::CheckArgs),
    /// Rebuild lost histories from the approved and refunds topics
    Rebuild(cli::rebuild::RebuildArgs),
    /// Build, inspect and query sets of segments
    #[command(subcommand)]
    Segments(Box<cli::segments::SegmentsCommand>),
    /// Validate policies, and replay past intents against them
    #[command(subcommand)]
    Policy(cli::policy::PolicyCommand),
    /// Explain why a user's intents were suppressed, and when the next one is allowed
    Explain(cli::explain::ExplainArgs),
    /// Delete what Redis holds about a user, and report what stays in Kafka
    Forget(cli::forget::ForgetArgs),
    /// Estimate capacity for a number of users and a rate: Redis, workers, Kafka, queue wait
    Plan(Box<cli::plan::PlanArgs>),
}

fn main() {
    native::allocator::prepare();
    let verb = Cli::parse().verb;
    cli::time_zones::in_use();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            native::leave(cli::exit::report(&anyhow::Error::new(error).context("the runtime does not start")));
        }
    };
    let outcome = runtime.block_on(act(verb));
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
async fn act(verb: Verb) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match verb {
        Verb::Demo(args) => Box::pin(cli::demo::run(&args, &mut out)).await,
        Verb::Run(args) => Box::pin(cli::run::run(&args)).await,
        Verb::Check(args) => Box::pin(cli::check::run(&args, &mut out)).await,
        Verb::Rebuild(args) => Box::pin(cli::rebuild::run(&args, &mut out)).await,
        Verb::Segments(command) => Box::pin(cli::segments::run(&command, &mut out)).await,
        Verb::Explain(args) => Box::pin(cli::explain::run(&args, &mut out)).await,
        Verb::Forget(args) => Box::pin(cli::forget::run(&args, &mut out)).await,
        Verb::Policy(command) => Box::pin(cli::policy::run(&command, &mut out)).await,
        Verb::Plan(args) => cli::plan::run(&args, &mut out),
    }
}
