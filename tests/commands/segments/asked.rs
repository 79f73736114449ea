//! `weir segments inspect`, `lookup` and `members`: a set is asked, by people and by programs.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use testkit::process::output_given;
use weir::cli::exit::UsageError;

use super::commands::{weir, write};
use super::support::{put, set};

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What the program prints, given this on its standard input.
fn piped(folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let args = args.iter().map(|arg| arg.replace("{}", folder.to_str().unwrap()));
    let output = output_given(input, weir.arg("segments").args(args)).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn members_are_listed_in_order_and_a_list_goes_on_where_it_ended() {
    let folder = testkit::folder();
    let numbers: Vec<u64> = (0..25_000).map(|n| n * 3).collect();
    put(folder.path(), &set("v1", &[("a", &numbers)]));
    let all = weir(folder.path(), &["members", "{}/manifest.json", "a"]).await.unwrap();
    assert_eq!(all.lines().map(|line| line.parse::<u64>().unwrap()).collect::<Vec<_>>(), numbers);

    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let mut args = vec!["members", "{}/manifest.json", "a", "--limit", "11000", "--output", "json"];
        args.extend(after.iter().flat_map(|after: &String| ["--after", after]));
        let page = json_of(&weir(folder.path(), &args).await.unwrap());
        listed
            .extend(page["members"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse::<u64>().unwrap()));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, numbers);
    let error = weir(folder.path(), &["members", "{}/manifest.json", "a", "--limit", "0"]).await.unwrap_err();
    assert!(error.is::<UsageError>());
}

#[tokio::test]
async fn members_are_united_intersected_and_subtracted_and_counted() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1, 2, 3, 4]), ("b", &[4, 5]), ("c", &[2, 5, 9]), ("d", &[])]));
    let cases: [(&[&str], &[u64]); 7] = [
        (&["a", "--union", "b"], &[1, 2, 3, 4, 5]),
        (&["a", "--union", "b", "--union", "c"], &[1, 2, 3, 4, 5, 9]),
        (&["a", "--intersect", "c"], &[2]),
        (&["a", "--minus", "b", "--minus", "c"], &[1, 3]),
        (&["a", "--minus", "c", "--union", "b"], &[1, 3, 4]),
        (&["a", "--union", "b", "--intersect", "c", "--minus", "a"], &[5]),
        (&["d", "--intersect", "a"], &[]),
    ];
    for (args, expected) in cases {
        let args = [&["members", "{}/manifest.json"], args].concat();
        let listed = weir(folder.path(), &args).await.unwrap();
        let listed: Vec<u64> = listed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(listed, expected, "{args:?}");
        let count = weir(folder.path(), &[&args[..], &["--count"]].concat()).await.unwrap();
        assert_eq!(count.trim(), expected.len().to_string(), "{args:?}");
        let count = weir(folder.path(), &[&args[..], &["--count", "--output", "json"]].concat()).await.unwrap();
        assert_eq!(json_of(&count), json!({"count": expected.len()}), "{args:?}");
    }
    let error = weir(folder.path(), &["members", "{}/manifest.json", "a", "--minus", "e"]).await.unwrap_err();
    assert!(error.is::<UsageError>() && error.to_string().contains("`e`; the set has a, b, c, d"), "{error}");
}

#[tokio::test]
async fn many_users_are_looked_up_from_arguments_a_file_and_standard_input() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1, 2]), ("b", &[2, 3]), ("c", &[2])]));
    let many: String = (0..30_000).map(|user| format!("{user}\r\n")).collect();
    write(folder.path(), &[("ids", many.as_bytes()), ("long", &[b'1'; 5000]), ("wide", b"1\0\n\0")]);

    let said = weir(folder.path(), &["lookup", "{}/manifest.json", "x", "2", "--file", "{}/ids"]).await.unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..4], ["x: in no segment", "2: a (and in b, c)", "0: in no segment", "1: a"]);
    assert_eq!((lines.len(), lines[30_001]), (30_002, "29999: in no segment"));

    let (code, said, _) =
        piped(folder.path(), &["lookup", "{}/manifest.json", "--file", "-", "--output", "json"], &many);
    let said = json_of(&said);
    assert_eq!((code, said.as_array().unwrap().len()), (Some(0), 30_000));
    assert_eq!(said[3], json!({"user_id": "3", "segment": "b", "in_several": false, "also_in": []}));
    assert_eq!(said[2], json!({"user_id": "2", "segment": "a", "in_several": true, "also_in": ["b", "c"]}));
    assert_eq!(said[9]["segment"], Value::Null);

    let (code, said, _) = piped(folder.path(), &["lookup", "{}/manifest.json", "--file", "-", "--output", "json"], "");
    assert_eq!((code, json_of(&said)), (Some(0), json!([])));
    for (file, expected) in [
        ("{}/long", "long:1: a line of more than 1024 bytes"),
        ("{}/wide", "wide:1: `1\\0` has a byte 0, as text in UTF-16 has"),
    ] {
        let error = weir(folder.path(), &["lookup", "{}/manifest.json", "--file", file]).await.unwrap_err();
        assert!(error.to_string().contains(expected) && error.is::<UsageError>(), "{error}");
    }
    assert!(weir(folder.path(), &["lookup", "{}/manifest.json"]).await.unwrap_err().is::<clap::Error>());
}

#[tokio::test]
async fn a_set_is_built_from_standard_input() {
    let folder = testkit::folder();
    let args = ["build", "--into", "{}/lines", "--user-id", "u32", "a=-", "--output", "json"];
    let (code, said, error) = piped(folder.path(), &args, "1\n2\n");
    assert_eq!(code, Some(0), "{error}");
    let said = json_of(&said);
    assert_eq!((&said["segments"][0]["cardinality"], &said["user_id"]), (&json!(2), &json!("u32")));
    let manifest = std::fs::read_to_string(folder.path().join("lines/manifest.json")).unwrap();
    assert_eq!(json_of(&manifest)["segments"][0]["sha256"], said["segments"][0]["sha256"]);

    for (input, warns) in [("", true), (" \n", true), ("7\n", false)] {
        let (code, _, error) = piped(folder.path(), &args, input);
        assert_eq!((code, error.contains("warning: segment `a` has no users")), (Some(0), warns), "{input:?}: {error}");
    }

    let args = ["build", "--into", "{}/csv", "--user-id", "u32", "--csv", "-"];
    let (code, _, _) = piped(folder.path(), &args, "\u{FEFF}user_id,segment\n1,a\n2,b\n3,\"b\"\n");
    assert_eq!(code, Some(0));
    assert_eq!(weir(folder.path(), &["members", "{}/csv/manifest.json", "b"]).await.unwrap(), "2\n3\n");
    let (code, _, error) = piped(folder.path(), &args, "user_id,segment\n1,a\nx,b\n");
    assert_eq!(code, Some(2));
    assert!(error.contains("standard input:3: `x`"), "{error}");
}

#[tokio::test]
async fn two_versions_are_compared_by_who_came_went_and_moved() {
    let folder = testkit::folder();
    let build = |version: &'static str, files: [&'static str; 2]| {
        let folder = folder.path().to_owned();
        async move {
            write(&folder, &[("new", files[0].as_bytes()), ("old", files[1].as_bytes())]);
            let args = ["build", "--into", "{}/set", "--user-id", "u32", "--set-version", version];
            weir(&folder, &[&args[..], &["new={}/new", "old={}/old"]].concat()).await.unwrap();
        }
    };
    build("v1", ["1\n2\n3\n", "7\n8\n"]).await;
    build("v2", ["1\n5\n", "2\n7\n"]).await;
    let args = ["inspect", "{}/set/manifest.json", "--against", "{}/set/manifest-v1.json"];
    let said = weir(folder.path(), &args).await.unwrap();
    assert!(said.contains("since version v1:") && said.contains("1 users went from `new` to `old`"), "{said}");
    let said = json_of(&weir(folder.path(), &[&args[..], &["--output", "json"]].concat()).await.unwrap());
    let change = |before, after, [added, removed, moved_in, moved_out]: [u64; 4], name| {
        json!({"name": name, "before": before, "after": after, "added": added, "removed": removed,
               "moved_in": moved_in, "moved_out": moved_out})
    };
    let expected = [change(3, 2, [1, 1, 0, 1], "new"), change(2, 2, [0, 1, 1, 0], "old")];
    assert_eq!(said["diff"]["segments"], json!(expected));
    assert_eq!(said["diff"]["moves"], json!([{"from": "new", "to": "old", "users": 1}]));

    write(folder.path(), &[("ids", b"1\n")]);
    weir(folder.path(), &["build", "--into", "{}/other", "--user-id", "u64", "a={}/ids"]).await.unwrap();
    let args = ["inspect", "{}/set/manifest.json", "--against", "{}/other/manifest.json"];
    let error = weir(folder.path(), &args).await.unwrap_err();
    assert!(error.is::<UsageError>() && error.to_string().contains("cannot be compared"), "{error}");
}

#[tokio::test]
async fn sets_that_are_built_one_after_the_other_keep_a_copy_of_the_manifest_each() {
    let folder = testkit::folder();
    write(folder.path(), &[("ids", b"1\n")]);
    for _ in 0..3 {
        weir(folder.path(), &["build", "--into", "{}/set", "--user-id", "u32", "a={}/ids"]).await.unwrap();
    }
    let files = std::fs::read_dir(folder.path().join("set")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_string_lossy().starts_with("manifest-")).count(), 3);
}

#[tokio::test]
async fn overlaps_of_a_set_that_others_made_are_shown_with_counts_and_users() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1, 2, 3]), ("b", &[2, 3, 4])]));
    let said = weir(folder.path(), &["inspect", "{}/manifest.json"]).await.unwrap();
    assert!(said.contains("2 users are in `a` and `b` (such as 2, 3); `a` wins"), "{said}");
    let said = json_of(&weir(folder.path(), &["inspect", "{}/manifest.json", "--output", "json"]).await.unwrap());
    assert_eq!(said["overlaps"], json!([{"segments": ["a", "b"], "users": 2, "examples": ["2", "3"]}]));
    assert_eq!(said["segments"][0]["containers"], json!({"array": 1, "run": 0, "bitset": 0}));
}

#[tokio::test]
async fn what_is_in_runs_is_stored_as_runs() {
    let folder = testkit::folder();
    let ids: String = (1000..60_000).map(|id| format!("{id}\n")).collect();
    write(folder.path(), &[("ids", ids.as_bytes())]);
    weir(folder.path(), &["build", "--into", "{}", "--user-id", "u32", "a={}/ids"]).await.unwrap();
    let said = json_of(&weir(folder.path(), &["inspect", "{}/manifest.json", "--output", "json"]).await.unwrap());
    assert_eq!(said["segments"][0]["containers"], json!({"array": 0, "run": 1, "bitset": 0}));
    assert!(said["segments"][0]["bytes"].as_u64().unwrap() < 100);
}
