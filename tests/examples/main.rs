//! The programs in examples/, in each language, between a real Kafka and a real weir, and before services that do not admit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod admitted;
mod deliveries;
mod language;
mod services;
mod walk;

use language::Language::{Go, Java, Node, Python};

#[test]
fn python_publishes_consumes_refunds_and_asks() {
    walk::run(Python);
}

#[test]
fn java_publishes_consumes_refunds_and_asks() {
    walk::run(Java);
}

#[test]
fn go_publishes_consumes_refunds_and_asks() {
    walk::run(Go);
}

#[test]
fn node_publishes_consumes_refunds_and_asks() {
    walk::run(Node);
}

#[test]
fn python_delivers_by_the_rule() {
    deliveries::run(Python);
}

#[test]
fn java_delivers_by_the_rule() {
    deliveries::run(Java);
}

#[test]
fn go_delivers_by_the_rule() {
    deliveries::run(Go);
}

#[test]
fn node_delivers_by_the_rule() {
    deliveries::run(Node);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn every_language_tries_for_a_few_seconds_at_most() {
    [Python, Java, Go, Node].into_iter().for_each(deliveries::is_quick);
}

#[test]
fn every_language_waits_for_a_weir_without_capacity() {
    admitted::run([Python, Java, Go, Node]);
}
