//! `weir segments`: what is built can be loaded, and what should not be built is refused.

use std::path::Path;

use clap::Parser;
use weir::cli::{
    exit::UsageError,
    segments::{SegmentsCommand, run},
};

use super::support::{load, names, source};

#[derive(Parser)]
struct Segments {
    #[command(subcommand)]
    command: SegmentsCommand,
}

/// Runs a command; `{}` in an argument is the folder.
pub async fn weir(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let args = args.iter().map(|arg| arg.replace("{}", folder.to_str().unwrap()));
    let segments = Segments::try_parse_from(["segments".to_owned()].into_iter().chain(args))?;
    let mut out = Vec::new();
    run(&segments.command, &mut out).await?;
    Ok(String::from_utf8(out)?)
}

pub fn write(folder: &Path, files: &[(&str, &[u8])]) {
    files.iter().for_each(|(name, content)| std::fs::write(folder.join(name), content).unwrap());
}

#[tokio::test]
async fn a_set_built_from_files_of_ids_is_loaded_and_tells_who_is_where() {
    let folder = testkit::folder();
    write(folder.path(), &[("new.txt", b"\xEF\xBB\xBF3\r\n\r\n1\n 2 \n2"), ("more.txt", b"9"), ("old.txt", b"7\n\n")]);
    let args = ["build", "--into", "{}/set", "--user-id", "u32", "--set-version", "v1"];
    let files = ["new={}/new.txt", "old={}/old.txt", "new={}/more.txt"];
    let said = weir(folder.path(), &[&args[..], &files[..]].concat()).await.unwrap();
    assert!(said.contains("new: 4 users") && said.contains("old: 1 users") && said.contains("version v1"), "{said}");

    let set = load(&mut source(&folder.path().join("set")).await).await;
    assert_eq!(names(&set, &["1", "9", "7", "8"]), [Some("new"), Some("new"), Some("old"), None]);
    let said = weir(folder.path(), &["inspect", "{}/set/manifest.json"]).await.unwrap();
    assert!(said.starts_with("version v1, user ids are u32\n") && said.contains("old"), "{said}");
}

#[tokio::test]
async fn a_set_built_from_csv_takes_the_columns_by_name() {
    let folder = testkit::folder();
    let csv = "segment,since,user_id\r\nnew,2026,u18446744073709551615\r\n\"old, really\",2020,u5\r\n";
    write(folder.path(), &[("users.csv", csv.as_bytes())]);
    let args = ["build", "--into", "{}", "--user-id", "u64", "--user-id-prefix", "u", "--csv", "{}/users.csv"];
    weir(folder.path(), &args).await.unwrap();
    let set = load(&mut source(folder.path()).await).await;
    assert_eq!(names(&set, &["18446744073709551615", "5"]), [Some("new"), Some("old, really")]);
    assert!(set.version().starts_with("20") && set.version().ends_with('Z'), "{}", set.version());
}

#[tokio::test]
async fn the_same_users_give_the_same_objects_and_other_ones_other_names() {
    let folder = testkit::folder();
    let objects = || std::fs::read_dir(folder.path().join("set")).unwrap().count();
    for (ids, expected) in [("1\n2\n", 3), ("2\n1\n", 3), ("1\n2\n3\n", 4)] {
        write(folder.path(), &[("new.txt", ids.as_bytes())]);
        let args = ["build", "--into", "{}/set", "--user-id", "u32", "--set-version", "v:1", "new={}/new.txt"];
        weir(folder.path(), &args).await.unwrap();
        assert_eq!(objects(), expected, "the manifest, its copy manifest-v_1.json, and the objects so far");
        assert!(folder.path().join("set/manifest-v_1.json").exists());
    }
}

#[tokio::test]
async fn wrong_input_is_refused_with_its_place_and_nothing_is_written() {
    let build = |files: &'static [&'static str]| [&["build", "--into", "{}/set", "--user-id", "u32"], files].concat();
    let a_long_line = vec![b'1'; 5000];
    let an_open_quote = [&b"user_id,segment\n1,a\n2,\"b\n"[..], &b"3,b\n".repeat(100_000)].concat();
    let a_long_record = [b"user_id,segment,why\n1,a,\n2,a,"[..].to_vec(), vec![b'y'; 70_000], b"\n".to_vec()].concat();
    let cases: &[(&[u8], Vec<&str>, &str)] = &[
        (b"1\n2\nx\n", build(&["a={}/ids"]), "ids:3: `x` is not a u32 id"),
        (b"042\n", build(&["a={}/ids"]), "ids:1: `042`"),
        (b"1\n4294967296", build(&["a={}/ids"]), "ids:2: `4294967296`"),
        (b"1\n\xFF\n", build(&["a={}/ids"]), "ids:2:"),
        (&a_long_line, build(&["a={}/ids"]), "ids:1: a line of more than 1024 bytes"),
        (b"1\n", build(&["a"]), "`a` is not NAME=FILE"),
        (b"1\n", build(&["a={}/nowhere"]), "nowhere"),
        (b"1\n5\n6\n", build(&["a={}/ids", "b={}/ids"]), "3 in `a` and `b` (such as 1, 5, 6)"),
        (b"user,segment\n1,a\n", build(&["--csv", "{}/ids"]), "ids:1: no column `user_id`"),
        (b"user_id,segment\n1,a\n2,\n", build(&["--csv", "{}/ids"]), "ids:3: no segment"),
        (b"user_id,segment\n1,a\n2\n", build(&["--csv", "{}/ids"]), "line: 3"),
        (b"user_id,segment\n1,a\n1,b\n", build(&["--csv", "{}/ids"]), "1 in `a` and `b` (such as 1)"),
        (b"user_id,segment\n1,a\n2,\"b\n3,a\n", build(&["--csv", "{}/ids"]), "ids:3: the segment's name has a control"),
        (b"1\n", build(&["a=-", "b=-"]), "standard input (-) is given more than once"),
        (&an_open_quote, build(&["--csv", "{}/ids"]), "ids:3: a record of more than 64 KiB begins here; is a quote"),
        (&a_long_record, build(&["--csv", "{}/ids"]), "ids:3: a record of more than 64 KiB"),
        (b"user_id,segment\n", build(&["--csv", "{}/ids"]), "no segments"),
    ];
    // UTF-16, as in <https://github.com/glific/glific/issues/5657> and <https://github.com/openwisp/openwisp-radius/issues/550>, is text
    // that can be hashed where it has no byte order mark.
    let hashed = |more: &'static [&'static str]| [&["build", "--into", "{}/set", "--user-id", "hash64"], more].concat();
    let wide: [(&[u8], Vec<&str>, &str); 3] = [
        (b"a\0\n\0", hashed(&["a={}/ids"]), "ids:1: `a\\0` has a byte 0, as text in UTF-16 has"),
        (b"\xFF\xFEa\0\n\0", hashed(&["a={}/ids"]), "ids:1:"),
        (b"user_id,segment\nb\0,a\n", hashed(&["--csv", "{}/ids"]), "as text in UTF-16 has; save the file as UTF-8"),
    ];
    for (content, args, expected) in cases.iter().chain(&wide) {
        let folder = testkit::folder();
        write(folder.path(), &[("ids", content)]);
        let error = weir(folder.path(), args).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error} should say {expected:?}");
        assert!(error.is::<UsageError>(), "{error} is for the user to correct");
        assert!(!folder.path().join("set").exists());
    }
}

#[tokio::test]
async fn one_kind_of_input_is_wanted_and_no_more() {
    let folder = testkit::folder();
    for input in [&[][..], &["--csv", "users.csv", "a=ids"]] {
        let args = [&["build", "--into", "{}", "--user-id", "u32"], input].concat();
        assert!(weir(folder.path(), &args).await.unwrap_err().is::<clap::Error>());
    }
}

#[tokio::test]
async fn the_schema_that_is_checked_in_is_the_one_of_the_code_and_takes_what_is_built() {
    let schema = weir_core::segment::Manifest::json_schema();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/segments.schema.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), schema, "UPDATE=1 cargo test writes it");

    let folder = testkit::folder();
    write(folder.path(), &[("ids", b"1\n")]);
    weir(folder.path(), &["build", "--into", "{}", "--user-id", "hash64", "a={}/ids"]).await.unwrap();
    let built = std::fs::read(folder.path().join("manifest.json")).unwrap();
    let built = serde_json::from_slice(&built).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    assert!(jsonschema::is_valid(&schema, &built));
    assert!(!jsonschema::is_valid(&schema, &serde_json::json!({"version": "v1", "user_id": "u16", "segments": []})));
}
