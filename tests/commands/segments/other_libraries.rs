//! Bitmaps go both ways between weir and the libraries that others make them with: CRoaring (by pyroaring) and the
//! Java library, 32 and 64 bits; theirs are made by subtraction, as segments are. `cargo xtask setup` fetches both.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use testkit::process::output;
use weir_core::segment::{UserIdKind, UserIds};

use super::{
    commands::weir,
    support::{entry, load, manifest, put, source},
};

/// What is exchanged: numbers in runs, thick, thin, and at both ends of the range.
fn numbers(kind: UserIdKind) -> Vec<u64> {
    let thick = (1 << 20..(1 << 20) + 65_536).step_by(3);
    let narrow = [0, 1, 42, (1 << 31) - 1, 1 << 31, (1 << 32) - 1];
    let narrow = narrow.into_iter().chain(100_000..165_000).chain(thick).chain((1 << 24..(1 << 24) + 60).step_by(2));
    let wide = [1 << 32, (1 << 40) + 7, (1 << 63) - 1, 1 << 63, u64::MAX].into_iter().chain(1 << 50..(1 << 50) + 5000);
    let ids = UserIds::new(UserIdKind::Hash64, "");
    let mut numbers: Vec<u64> = match kind {
        UserIdKind::U32 => narrow.collect(),
        UserIdKind::U64 => narrow.chain(wide).collect(),
        UserIdKind::Hash64 => (0..5000).filter_map(|user| ids.number(&format!("user-{user}"))).collect(),
    };
    numbers.sort_unstable();
    numbers
}

fn lines(numbers: &[u64]) -> String {
    numbers.iter().map(|number| format!("{number}\n")).collect()
}

const KINDS: [UserIdKind; 3] = [UserIdKind::U32, UserIdKind::U64, UserIdKind::Hash64];

fn bits(kind: UserIdKind) -> &'static str {
    match kind {
        UserIdKind::U32 => "32",
        UserIdKind::U64 | UserIdKind::Hash64 => "64",
    }
}

/// `(verb, kind, from, to)`, as the programs in interop/ take them.
type Task = (&'static str, UserIdKind, PathBuf, PathBuf);

fn run(mut program: Command, tasks: &[Task]) {
    for (verb, kind, from, to) in tasks {
        program.args([verb, bits(*kind)]).arg(from).arg(to);
    }
    let output = output(&mut program).unwrap_or_else(|error| panic!("{error:#}; run `cargo xtask setup`"));
    assert!(output.status.success(), "run `cargo xtask setup`? {}", String::from_utf8_lossy(&output.stderr));
}

/// What the other library makes, weir reads; what weir builds, the other library reads.
async fn both_ways(library: impl Fn() -> Command) {
    let folder = testkit::folder();
    let path = |name: String| folder.path().join(name);
    let mut tasks: Vec<Task> = Vec::new();
    for kind in KINDS {
        let ids = match kind {
            UserIdKind::U32 | UserIdKind::U64 => lines(&numbers(kind)),
            UserIdKind::Hash64 => (0..5000).map(|user| format!("user-{user}\n")).collect(),
        };
        std::fs::write(path(format!("{kind}.ids")), ids).unwrap();
        std::fs::write(path(format!("{kind}.numbers")), lines(&numbers(kind))).unwrap();
        let (out, ids) = (format!("{{}}/{kind}"), format!("a={{}}/{kind}.ids"));
        let args = ["build", "--into", &out, "--user-id", kind.as_str(), &ids, "--output", "json"];
        let built: Value = serde_json::from_str(&weir(folder.path(), &args).await.unwrap()).unwrap();
        let object = built["segments"][0]["object"].as_str().unwrap();
        tasks.push(("list", kind, path(format!("{kind}/{object}")), path(format!("{kind}.listed"))));
        tasks.push(("make", kind, path(format!("{kind}.numbers")), path(format!("{kind}.roaring"))));
    }
    run(library(), &tasks);
    for kind in KINDS {
        let listed = std::fs::read_to_string(path(format!("{kind}.listed"))).unwrap();
        assert!(listed == lines(&numbers(kind)), "{kind}: ours is read there");
        reads(folder.path(), kind).await;
    }
}

/// Theirs is read here, in a set whose manifest somebody wrote by hand.
async fn reads(folder: &Path, kind: UserIdKind) {
    let bytes = std::fs::read(folder.join(format!("{kind}.roaring"))).unwrap();
    let numbers = numbers(kind);
    let set = folder.join(format!("{kind}-theirs"));
    std::fs::create_dir(&set).unwrap();
    let json = manifest("theirs", kind, vec![entry("a", &bytes, numbers.len() as u64)]).to_json();
    put(&set, &[("a.roaring".to_owned(), bytes), ("manifest.json".to_owned(), json.into_bytes())]);
    let loaded = load(&mut source(&set).await).await;
    assert_eq!(loaded.segments()[0].members.page(None, usize::MAX).members, numbers, "{kind}");
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[tokio::test]
async fn bitmaps_go_both_ways_between_weir_and_croaring() {
    both_ways(|| {
        let mut python = Command::new(here(".weir/python/bin/python"));
        python.arg(here("tests/commands/segments/interop/croaring.py"));
        python
    })
    .await;
}

#[tokio::test]
async fn bitmaps_go_both_ways_between_weir_and_the_java_library() {
    both_ways(|| {
        let mut java = Command::new("java");
        java.arg("-cp").arg(here(".weir/roaring-libs/*")).arg(here("tests/commands/segments/interop/Roaring.java"));
        java
    })
    .await;
}
