//! Every command by which the docs measure, once with a small load: one that no longer runs is found before somebody needs it.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{
    bounds,
    shell::{self, command},
};

/// After how many seconds the build is ended: cold it takes ten minutes.
const BUILD_SECONDS: u64 = 1_800;

struct Named {
    /// As the docs have it; without where its output goes.
    command: &'static str,
    /// Arguments that are added to make its load small: of an option, or a number, that is given twice the last one counts.
    small: &'static str,
    seconds: u64,
}

const fn named(command: &'static str, small: &'static str) -> Named {
    Named { command, small, seconds: 600 }
}

/// Commits so small that a drain is seen while it goes on.
const DRAINS: &str = "--rounds 1 --intents 100000 --batch 1000";
/// The main bench: its store alone takes minutes with all users.
const WHOLE: &str = "--rounds 1 --intents 100000 --batch 1000 --users 20000 --store-users 1000";

const SCALE: &str = "--rounds 1 --intents 100000 --users 10000 --plots target/plots-of-small-loads";

const NAMED: [Named; 18] = [
    named("cargo xtask bench", WHOLE),
    named("cargo xtask bench --output json", WHOLE),
    named("cargo xtask bench --intents 600000 --users 200000 --partitioner shard", WHOLE),
    named("cargo xtask bench cpu", "--rounds 1 --intents 100000 --users 20000"),
    named("cargo xtask bench calls", "--runs 1"),
    named(
        "cargo xtask bench latency",
        "--rounds 1 --rates 500 --intervals-ms 50 --seconds 2 --warm-up-seconds 1 --intents 100000 --batch 1000",
    ),
    Named { seconds: 1_800, ..named("cargo xtask bench scale", SCALE) },
    named("cargo xtask bench memory --intents 10000000", "--intents 100000"),
    // The minute in which all are due is three to fifteen minutes away.
    Named { seconds: 1_800, ..named("cargo xtask bench deferral --intents 10000000", "--intents 200000") },
    named("cargo xtask bench pressure", "--instances 1,4 --users 1000 --seconds 5"),
    named("cargo xtask bench budgets", "--limits 10000 --instances 1,4"),
    named("cargo xtask bench http", DRAINS),
    named("cargo xtask bench compare --env WEIR__KAFKA__PROPERTIES__COMPRESSION_TYPE=lz4", DRAINS),
    named("cargo xtask bench pace", "--plots target/plots-of-small-loads"),
    // It builds the pure parts by themselves.
    named("cargo xtask counts", "decode/plain"),
    named("cargo bench --bench rebuild -- 1000000", "20000"),
    named("cargo bench --bench segments", "-- 1000000"),
    named("cargo bench --bench simulate", "-- 10000"),
];

/// Builds weir as it is released and its benches, and runs all commands, those too that come after one that fails; names each that fails.
pub fn run() -> Result<()> {
    let build = ["bench", "-q", "--locked", "--no-run", "-p", "weir", "--bench", "*"];
    let limit = Duration::from_secs(BUILD_SECONDS);
    bounds::within("cargo bench --no-run", limit, || shell::run(command("cargo", &build)))?;
    let failed: Vec<String> = NAMED
        .iter()
        .filter_map(|named| named.run().err().map(|error| format!("{} {}: {error:#}", named.command, named.small)))
        .collect();
    ensure!(failed.is_empty(), "{} of {} commands failed:\n{}", failed.len(), NAMED.len(), failed.join("\n"));
    Ok(())
}

impl Named {
    fn run(&self) -> Result<()> {
        let args: Vec<&str> = self.command.split(' ').skip(1).chain(self.small.split(' ')).collect();
        bounds::within(self.command, Duration::from_secs(self.seconds), || shell::run(command("cargo", &args)))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::NAMED;
    use crate::shell::workspace;

    /// What measures.
    const MEASURES: [&str; 2] = ["cargo xtask bench", "cargo bench"];
    /// On this page every command of cargo does.
    const PAGE: &str = "docs/performance.md";

    /// The commands of a page, without comments and where their output goes: lines of its blocks, and what is in backticks.
    fn commands(text: &str) -> Vec<String> {
        let (mut found, mut prose, mut in_block) = (Vec::new(), String::new(), false);
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                found.push(line.to_owned());
            } else {
                prose.extend([line, "\n"]);
            }
        }
        let quoted = prose.split('`').skip(1).step_by(2);
        found.extend(quoted.map(|quoted| quoted.split_whitespace().collect::<Vec<_>>().join(" ")));
        let command = |line: &String| {
            let end = [" #", " > "].iter().filter_map(|end| line.find(*end)).min().unwrap_or(line.len());
            line[..end].trim().to_owned()
        };
        found.iter().map(command).filter(|line| line.starts_with("cargo ")).collect()
    }

    #[test]
    fn the_commands_by_which_the_docs_measure_are_those_that_are_run_with_a_small_load() {
        let mut measuring = BTreeSet::new();
        let entries = fs::read_dir(workspace().join("docs")).unwrap();
        let names = entries.map(|entry| format!("docs/{}", entry.unwrap().file_name().into_string().unwrap()));
        for page in names.filter(|name| name.ends_with(".md")).chain(["README.md".to_owned()]) {
            let text = fs::read_to_string(workspace().join(&page)).unwrap();
            let measures = |command: &String| page == PAGE || MEASURES.iter().any(|known| command.starts_with(known));
            measuring.extend(commands(&text).into_iter().filter(measures));
        }
        assert!(measuring.len() > 10, "the test looks in the wrong place: {measuring:?}");
        let run: BTreeSet<String> = NAMED.iter().map(|named| named.command.to_owned()).collect();
        let missing: Vec<_> = measuring.difference(&run).collect();
        let stale: Vec<_> = run.difference(&measuring).collect();
        assert!(missing.is_empty(), "xtask/src/small_loads.rs has no small load for {missing:#?}");
        assert!(stale.is_empty(), "xtask/src/small_loads.rs runs what no page of the docs names: {stale:#?}");
    }

    #[test]
    fn commands_are_found_in_blocks_and_in_lines() {
        let page = "a `cargo a\n--b` `weir run`\n```sh\ncargo b   # `c`\n./d\n  cargo e > f\n```\ng `cargo g`";
        assert_eq!(commands(page), ["cargo b", "cargo e", "cargo a --b", "cargo g"]);
    }
}
