//! One vocabulary of options, and what is generated from it: completions and man pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use clap::CommandFactory;
use testkit::process::output;
use weir::cli::command_line::CommandLine;

use crate::program::run;

/// Each command by its words, such as `weir segments build`.
fn commands() -> Vec<(String, clap::Command)> {
    let mut root = CommandLine::command().disable_help_subcommand(true);
    root.build();
    let mut waiting = vec![(root.get_name().to_owned(), root)];
    let mut found = Vec::new();
    while let Some((words, command)) = waiting.pop() {
        let below = command.get_subcommands().map(|sub| (format!("{words} {}", sub.get_name()), sub.clone()));
        waiting.extend(below);
        found.push((words, command));
    }
    found
}

/// What stands behind an option: nothing for a switch.
fn values(arg: &clap::Arg) -> Vec<String> {
    let words: Vec<String> = arg.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect();
    let takes = arg.get_action().takes_values();
    let names = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    if !takes || !words.is_empty() { words } else { names }
}

#[test]
fn an_option_means_the_same_in_every_command() {
    let mut seen: BTreeMap<String, BTreeMap<Vec<String>, Vec<String>>> = BTreeMap::new();
    for (words, command) in commands() {
        for arg in command.get_arguments() {
            let Some(long) = arg.get_long() else { continue };
            assert!(arg.get_help().is_some(), "{words} --{long} has no help");
            assert_eq!(arg.get_all_aliases(), None, "{words} --{long} has a second name");
            seen.entry(long.to_owned()).or_default().entry(values(arg)).or_default().push(words.clone());
        }
    }
    for (long, meanings) in &seen {
        assert_eq!(meanings.len(), 1, "--{long} means several things: {meanings:?}");
    }
    let value = |long: &str| seen[long].keys().next().unwrap().join("|");
    assert_eq!(value("output"), "text|json");
    for (long, expected) in
        [("config", "FILE"), ("since", "TIME"), ("until", "TIME"), ("history", "DURATION"), ("against", "FILE")]
    {
        assert_eq!(value(long), expected, "--{long}");
    }
    let kinds: BTreeSet<String> = seen.keys().map(|long| value(long)).collect();
    for other in ["COUNT", "NUMBER", "LENGTH", "PATH", "FORMAT"] {
        assert!(!kinds.contains(other), "{other} has another name already: {kinds:?}");
    }
}

#[test]
fn every_command_and_option_has_its_man_page() {
    let folder = testkit::folder();
    let pages = folder.path().join("man/man1");
    let written = run(folder.path(), &["man", "man/man1"], &[]);
    assert!(written.0 == 0 && written.1.is_empty(), "{written:?}");
    let commands = commands();
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), commands.len());
    for (words, command) in commands {
        let page = std::fs::read_to_string(pages.join(format!("{}.1", words.replace(' ', "-")))).unwrap();
        assert!(page.contains(".TH ") && page.contains(".SH SYNOPSIS"), "{words}: {page}");
        for long in command.get_arguments().filter_map(clap::Arg::get_long) {
            let option = format!(r"\-\-{}", long.replace('-', r"\-"));
            assert!(page.contains(&option), "{words} --{long}: {page}");
        }
    }
    std::fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(run(folder.path(), &["man", "file/man1"], &[]).0, 1);
}

fn completions(shell: &str) -> String {
    let (code, out, err) = run(Path::new("."), &["completions", shell], &[]);
    assert_eq!(code, 0, "{err}");
    out
}

/// What bash offers for the last of these words.
fn offered(folder: &Path, words: &[&str]) -> BTreeSet<String> {
    std::fs::write(folder.join("weir.bash"), completions("bash")).unwrap();
    let line = r#"
source weir.bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_weir weir "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}""#;
    let output = output(Command::new("bash").args(["-c", line, "bash"]).args(words).current_dir(folder)).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values_and_each_shell_has_a_script() {
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        assert!(completions(shell).contains("accept-lost-history"), "{shell}");
    }
    let folder = testkit::folder();
    let set = |words: &[&str]| words.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(offered(folder.path(), &["weir", "he"]), set(&["health", "help"]));
    assert_eq!(offered(folder.path(), &["weir", "config", "show", "--out"]), set(&["--output"]));
    assert_eq!(offered(folder.path(), &["weir", "check", "--output", ""]), set(&["text", "json"]));
}
