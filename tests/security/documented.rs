//! The command lines of the page, run unchanged by Kafka's own tool and a Redis.

use std::{collections::BTreeSet, process::Command};

use testkit::{
    kafka::{Grant, libs_folder},
    redis::RedisServer,
    wait_until,
};

use crate::{
    page,
    redis_support::{DAY_MS, admit, at, batch, cap, opened, options, request, store},
    stage::STAGE,
    support::DEADLINE,
};

/// Makes each call of the file `calls`: an argument per line, and an empty line behind each call. The tool ends the process where it
/// fails.
const CALLS: &str = r#"
import java.nio.file.*;

public class Calls {
    public static void main(String[] none) throws Exception {
        for (String call : Files.readString(Path.of("calls")).split("\n\n")) {
            org.apache.kafka.tools.AclCommand.main(call.split("\n"));
        }
    }
}
"#;

#[test]
fn kafka_s_own_tool_takes_the_lines_as_they_stand_on_the_page() {
    let folder = testkit::folder();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    // An installation of Kafka starts a Java machine for each call. Here they are noted, and one machine makes them all.
    write("kafka-acls.sh", "#!/bin/sh\n{ printf '%s\\n' \"$@\"; echo; } >>calls\n");
    write("Calls.java", CALLS);
    write("admin.properties", "");
    let lines: Vec<&str> = page::acl_blocks().map(page::block).collect();
    write("lines.sh", &format!("{}\n{}", page::block("kafka acl"), lines.concat()));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let run = |calls: &str| {
        let script = format!(
            "rm -f calls; {calls}; \
             exec java -Xmx128m -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp '{}/*' Calls.java",
            libs_folder().display()
        );
        let mut bash = Command::new("bash");
        bash.args(["-euc", &script]).current_dir(folder.path()).env("BROKERS", STAGE.kafka.admin().bootstrap());
        let output = testkit::process::output(bash.env("PATH", &path)).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    run("chmod +x kafka-acls.sh; . ./lines.sh");
    // What is listed is what the other tests grant: each operation on each resource.
    let granted: BTreeSet<String> = page::acl_blocks()
        .flat_map(page::block_lines)
        .flat_map(|line| Grant::parse(line).unwrap().bindings())
        .map(|(operation, resource)| format!("{operation} {resource}"))
        .collect();
    assert!(granted.len() > 10, "{granted:?}");
    // A broker lists what was added as soon as it has heard of it.
    wait_until(DEADLINE, "all of them are listed", || {
        let listed = run("kafka-acls.sh --bootstrap-server \"$BROKERS\" --list --principal User:weir");
        let is_listed = |binding: &&String| {
            let (operation, resource) = binding.split_once(' ').unwrap();
            // A group and a transactional id may have one name.
            let words = [format!("name={resource},"), format!("operation={operation},")];
            let mut parts = listed.split("Current ACLs for resource");
            parts.any(|part| words.iter().all(|word| part.contains(word)))
        };
        let missing: Vec<&String> = granted.iter().filter(|binding| !is_listed(binding)).collect();
        if !missing.is_empty() {
            eprintln!("not listed: {missing:?}");
        }
        missing.is_empty()
    });
}

#[tokio::test]
async fn redis_takes_the_lines_as_they_stand_on_the_page_and_lets_a_worker_in_by_them() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    for name in ["redis", "redis rebuild", "redis budgets", "redis pressure", "redis explain"] {
        let words: Vec<&str> = page::block(name).split_whitespace().collect();
        assert_eq!(server.cli(&words).unwrap().trim(), "OK", "{name}");
    }
    let mut options = options(&[server.url()]);
    options.prefix = "weir".to_owned();
    options.username = Some("weir".to_owned());
    options.password = Some(weir_redis::Password::Given("password".to_owned()));
    let opened = opened(&options).await.unwrap();
    let one = batch(at(0), &[cap(1, DAY_MS)], vec![request("somebody", 1)]);
    let (answers, result) = admit(&mut store(&options, &opened), &one).await;
    result.unwrap();
    assert!(answers[0].is_some());
    // And nothing more: neither the default user's password nor other keys.
    let users = server.cli(&["acl", "list"]).unwrap();
    assert!(users.contains("user weir on") && users.contains("user weir-explain on"), "{users}");
}
