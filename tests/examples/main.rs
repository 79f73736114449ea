//! The programs in examples/, in each language, between a real Kafka and a real weir, and before services that do not admit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod admitted;
mod deliveries;
mod language;
mod services;
mod walk;

use language::Language::{self, Go, Java, Node, Python};

/// One test of all programs of a language: they are compiled once. Side by side, because they wait most of the time.
fn run(language: Language) {
    std::thread::scope(|threads| {
        threads.spawn(|| deliveries::run(language));
        threads.spawn(|| admitted::run(language));
        walk::run(language);
    });
}

#[test]
fn python_publishes_consumes_refunds_asks_and_delivers_by_the_rule() {
    run(Python);
}

#[test]
fn java_publishes_consumes_refunds_asks_and_delivers_by_the_rule() {
    run(Java);
}

#[test]
fn go_publishes_consumes_refunds_asks_and_delivers_by_the_rule() {
    run(Go);
}

#[test]
fn node_publishes_consumes_refunds_asks_and_delivers_by_the_rule() {
    run(Node);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn every_language_tries_for_a_few_seconds_at_most() {
    [Python, Java, Go, Node].into_iter().for_each(deliveries::is_quick);
}
