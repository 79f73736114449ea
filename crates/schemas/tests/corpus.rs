//! The stored inputs of fuzz/ go through its targets, which are compiled here too: fuzzers themselves are built for fuzzing alone.

use std::{fs, path::Path};

#[path = "../../../fuzz/src/lib.rs"]
mod fuzzed;

type Target = fn(&[u8]);

/// Every target, with the folder of its inputs.
const TARGETS: [(&str, Target); 10] = [
    ("approved", fuzzed::approved),
    ("bitmap", fuzzed::bitmap),
    ("deferral", fuzzed::deferral),
    ("framed", fuzzed::framed),
    ("history", fuzzed::history),
    ("intent", fuzzed::intent),
    ("manifest", fuzzed::manifest),
    ("policy", fuzzed::policy),
    ("refund", fuzzed::refund),
    ("reply", fuzzed::reply),
];

#[test]
fn every_stored_input_goes_through_its_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = fs::read_dir(&corpus).unwrap().count();
    assert_eq!(folders, TARGETS.len(), "each folder of {} has a target here", corpus.display());
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for input in fs::read_dir(corpus.join(name)).unwrap() {
            let path = input.unwrap().path();
            // A target that panics does not say by which input.
            eprintln!("{}", path.display());
            target(&fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{name}");
    }
}
