//! How long a rebuild waits for what was decided before it, against where the parts come from.

use rdkafka::config::ClientConfig;

use super::*;
use crate::config;

const SETTINGS: &str = "[kafka]\nbrokers = \"127.0.0.1:1\"\nintents = \"i\"\napproved = \"a\"\nsuppressed = \"s\"\n\
                        dead_letters = \"d\"\n";

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn kafka(session_ms: Option<&str>) -> KafkaOptions {
    let settings = config::kafka(SETTINGS).unwrap();
    let properties = session_ms.map(|ms| ("session.timeout.ms".to_owned(), ms.to_owned())).into_iter().collect();
    KafkaOptions { properties, ..assemble::kafka(&settings) }
}

/// What librdkafka makes of settings.
fn in_force(config: &ClientConfig, name: &str) -> Duration {
    let text = config.create_native_config().unwrap().get(name).unwrap();
    Duration::from_millis(text.parse().unwrap())
}

#[test]
fn a_decision_from_before_the_mark_is_visible_or_void_once_it_has_settled() {
    // Session, settled after. The help, docs/operations.md and the README of `--settle` say 80 s.
    for (session_ms, settled) in [
        (None, s(80)),
        (Some("6000"), s(55)),
        (Some("45000"), s(80)),
        (Some("120000"), s(155)),
        (Some(" 120000"), s(155)),
        (Some("120000.0 "), s(155)),
    ] {
        let kafka = kafka(session_ms);
        let settle = settle_of(&kafka);
        assert_eq!(settle, settled, "session.timeout.ms = {session_ms:?}");
        // The slowest ways from an answer to a visible record, step by step. An answer is given up that is not handed
        // over within this time;
        let handed_over = ANSWERS_HOLD;
        // a commit that hangs is given up, and its transaction is aborted by the broker before that;
        let hangs = handed_over + sink::COMMIT_WATCHDOG;
        // a worker that freezes once it has handed over is given up by its group, and if it wakes just before, its
        // transaction may take as long as the broker lets it.
        let frozen = handed_over + in_force(&kafka.consumer(), "session.timeout.ms") + LAST_TRANSACTION;
        assert!(settle >= hangs && settle >= frozen, "{settle:?} against {hangs:?} and {frozen:?}");
    }
}

#[test]
fn the_parts_of_the_wait_are_what_the_clients_are_told() {
    let kafka = kafka(None);
    assert_eq!(in_force(&kafka.producer(0), "transaction.timeout.ms"), LAST_TRANSACTION);
    let session = Duration::from_millis(kafka.session_timeout_ms());
    assert_eq!(in_force(&kafka.consumer(), "session.timeout.ms"), session, "librdkafka's own");
    assert!(sink::COMMIT_WATCHDOG >= LAST_TRANSACTION, "the broker has aborted what the watchdog gives up");
}
