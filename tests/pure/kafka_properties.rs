//! Properties that librdkafka refuses together are reported by `weir check --offline` and end `weir run`, by the name that the user gave
//! and without a connection.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use crate::program::{self, invalid, run};

/// Settings of one lane with these properties, and with Kafka at this address.
fn configure(folder: &Path, kafka: SocketAddr, properties: &str) {
    let more = format!("[kafka.properties]\n{properties}\n[worker]\nlanes = 1\nmemory = \"300MiB\"\n");
    program::configure(folder, &kafka.to_string(), &more);
}

/// Adds a line to what is configured of Kafka.
fn set_in_kafka(folder: &Path, line: &str) {
    let config = std::fs::read_to_string(folder.join("weir.toml")).unwrap();
    std::fs::write(folder.join("weir.toml"), config.replace("[kafka]\n", &format!("[kafka]\n{line}\n"))).unwrap();
}

/// A Kafka that notices whether anybody connects.
fn nobody() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[track_caller]
fn is_alone(listener: &TcpListener) {
    let connected = listener.accept();
    assert!(connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{connected:?}");
}

#[test]
fn what_does_not_go_together_is_found_before_anything_connects() {
    let (folder, (listener, kafka)) = (testkit::folder(), nobody());
    for (properties, words) in [
        ("\"socket.timeout.ms\" = 60_000", "socket.timeout.ms must be 15100 or less: transaction.timeout.ms is 15000"),
        ("\"delivery.timeout.ms\" = 120_000", "delivery.timeout.ms must be 15000 or less: transaction.timeout.ms is"),
        ("\"max.in.flight\" = 10", "max.in.flight must be 5 or less: enable.idempotence is true, which weir sets"),
        ("\"retries\" = 0", "retries must be 1 or more: enable.idempotence is true, which weir sets"),
        (
            "\"session.timeout.ms\" = 600_000",
            "session.timeout.ms must be 300000 or less: max.poll.interval.ms is 300000",
        ),
        (
            "\"receive.message.max.bytes\" = 1_000_000",
            "receive.message.max.bytes must be 3303526 or more: fetch.max.bytes",
        ),
        ("\"security.protocol\" = \"SSL\"\n\"ssl.ca.location\" = \"nowhere.pem\"", "ssl.ca.location failed"),
    ] {
        configure(folder.path(), kafka, properties);
        let found = invalid(folder.path());
        assert!(found.len() == 1 && found[0].contains(words), "{properties}: {found:?}");
        let (code, _, said) = run(folder.path(), &["run", "--config", "weir.toml"], &[]);
        assert!(code == 2 && said.contains(&found[0]), "{properties}: {said}");
    }
    configure(folder.path(), kafka, "\"socket.timeout.ms\" = 60_000\n\"session.timeout.ms\" = 600_000");
    let found = invalid(folder.path());
    assert_eq!(found.len(), 2, "a line for the consumer, and one for the producer: {found:?}");
    configure(folder.path(), kafka, "\"delivery.timeout.ms\" = 120_000");
    set_in_kafka(folder.path(), "delivery = \"at_least_once\"");
    let found = invalid(folder.path());
    assert!(found.len() == 1 && found[0].contains("delivery.timeout.ms must be 1000 to 15000: "), "{found:?}");
    is_alone(&listener);
}

#[test]
fn what_goes_together_is_valid_and_nothing_connects() {
    let (folder, (listener, kafka)) = (testkit::folder(), nobody());
    let token = format!(
        "\"security.protocol\" = \"SASL_PLAINTEXT\"\n\"sasl.mechanism\" = \"OAUTHBEARER\"\n\"sasl.oauthbearer.method\" = \"oidc\"\n\
         \"sasl.oauthbearer.client.id\" = \"weir\"\n\"sasl.oauthbearer.client.secret\" = \"hunter2\"\n\
         \"sasl.oauthbearer.token.endpoint.url\" = \"http://{kafka}/\""
    );
    for properties in [
        "\"socket.timeout.ms\" = 15_100\n\"delivery.timeout.ms\" = 15_000\n\"max.in.flight\" = 5\n\"retries\" = 1",
        "\"session.timeout.ms\" = 600_000\n\"max.poll.interval.ms\" = 600_000\n\"receive.message.max.bytes\" = 3_303_526",
        &token,
    ] {
        configure(folder.path(), kafka, properties);
        assert_eq!(invalid(folder.path()), [""; 0], "{properties}");
    }
    configure(folder.path(), kafka, "");
    set_in_kafka(folder.path(), "aws_iam_region = \"eu-central-1\"");
    assert_eq!(invalid(folder.path()), [""; 0], "signed in by IAM");
    is_alone(&listener);
}

/// As in <https://github.com/imburseag/serilog-sinks-kafka/pull/81> and <https://github.com/fluent/fluent-plugin-kafka/issues/538>:
/// clients connect in plain text, and say nothing of what they were to trust.
#[test]
fn what_signs_in_or_encrypts_and_has_no_effect_is_warned_of() {
    let (folder, (listener, kafka)) = (testkit::folder(), nobody());
    let signed = "\"sasl.mechanism\" = \"PLAIN\"\n\"sasl.username\" = \"weir\"\n\"sasl.password\" = \"hunter2\"";
    let trusted = "\"ssl.ca.location\" = \"ca.pem\"";
    let by = |protocol: &str, properties: &str| format!("\"security.protocol\" = {protocol:?}\n{properties}");
    let nobody_signs_in =
        "has sasl.mechanism, sasl.password, sasl.username without effect: by \"security.protocol\" = ";
    let nothing_is_encrypted = "has ssl.ca.location without effect: by \"security.protocol\" = ";
    for (properties, expected) in [
        (signed.to_owned(), vec![format!("{nobody_signs_in}\"plaintext\"")]),
        (by("SSL", signed), vec![format!("{nobody_signs_in}\"ssl\"")]),
        (by("SASL_PLAINTEXT", signed), Vec::new()),
        (trusted.to_owned(), vec![format!("{nothing_is_encrypted}\"plaintext\"")]),
        (
            by("SASL_PLAINTEXT", &format!("{signed}\n{trusted}")),
            vec![format!("{nothing_is_encrypted}\"sasl_plaintext\"")],
        ),
    ] {
        configure(folder.path(), kafka, &properties);
        let found = program::found(folder.path(), &[], "configuration");
        let warned: Vec<&String> = found.iter().filter(|(kind, _)| kind == "warning").map(|(_, text)| text).collect();
        let fits = |(found, expected): (&&String, &String)| found.contains(expected.as_str());
        assert!(warned.len() == expected.len() && warned.iter().zip(&expected).all(fits), "{properties}: {found:?}");
        assert!(!warned.iter().any(|text| text.contains("hunter2")), "{warned:?}");
    }
    is_alone(&listener);
}
