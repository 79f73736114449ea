//! The stored corpus goes through every target, without a fuzzer.

use std::{fs, path::Path};

/// A target's name and the function.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 9] = [
    ("intent", weir_fuzz::intent),
    ("parked", weir_fuzz::parked),
    ("refund", weir_fuzz::refund),
    ("approved", weir_fuzz::approved),
    ("history", weir_fuzz::history),
    ("reply", weir_fuzz::reply),
    ("manifest", weir_fuzz::manifest),
    ("bitmap", weir_fuzz::bitmap),
    ("policy", weir_fuzz::policy),
];

#[test]
fn nothing_in_the_corpus_breaks_a_promise() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files = 0;
        for entry in fs::read_dir(&folder).expect("every target has a corpus") {
            target(&fs::read(entry.expect("a folder can be listed").path()).expect("a file can be read"));
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }
}
