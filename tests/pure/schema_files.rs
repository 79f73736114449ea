//! What is wrong with `[schemas.files]` is reported by `weir check` and ends `weir run`, with the id and the file.

use std::path::Path;

use crate::program::{self, invalid, run};

const INTENT: &str = r#"{"type": "record", "name": "I", "fields": [{"name": "id", "type": "string"}, {"name": "user_id", "type": "long"}]}"#;

fn configure(folder: &Path, files: &str) {
    program::configure(folder, "127.0.0.1:1", &format!("[intent]\nformat = \"avro\"\n[schemas.files]\n{files}\n"));
}

#[test]
fn each_file_that_is_no_schema_is_named_by_the_check_and_at_the_start() {
    let folder = testkit::folder();
    let file = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
    file("good.avsc", INTENT.as_bytes());
    file("torn.avsc", b"{");
    file("latin.avsc", b"{\"doc\": \"\xE9\"}");
    file("large.avsc", &vec![b' '; (1 << 20) + 1]);
    configure(folder.path(), "7 = \"good.avsc\"");
    assert_eq!(invalid(folder.path()), Vec::<String>::new());

    let files = "1 = \"good.avsc\"\n2 = \"nowhere.avsc\"\n3 = \"torn.avsc\"\n4 = \"latin.avsc\"\n5 = \"large.avsc\"\n6 = \".\"\n";
    configure(folder.path(), files);
    let found = invalid(folder.path()).join("\n");
    let (code, _, err) = run(folder.path(), &["run", "--config", "weir.toml"], &[]);
    assert_eq!(code, 2, "{err}");
    for shown in [&found, &err] {
        assert!(!shown.contains("schemas.files.1"), "{shown}");
        for (start, words) in [
            ("schemas.files.2: ", "nowhere.avsc cannot be read: No such file"),
            ("schemas.files.3: ", "torn.avsc is not a schema of Avro"),
            ("schemas.files.4: ", "latin.avsc cannot be read: "),
            ("schemas.files.5: ", "large.avsc cannot be read: it has more than 1048576 bytes"),
            ("schemas.files.6: ", " cannot be read: Is a directory"),
        ] {
            let line = shown.lines().find(|line| line.contains(start)).unwrap_or_else(|| panic!("{start}: {shown}"));
            assert!(line.contains(words), "{line}");
        }
    }
}
