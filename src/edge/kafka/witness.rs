//! A context for clients that ask once: it remembers why brokers could not be talked to, which librdkafka tells its
//! log alone. (A call that waits for a broker only says that its time is up.)

use arc_swap::ArcSwapOption;
use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError, RDKafkaErrorCode},
};

use super::client;

/// Remembers the last failure of a connection.
#[derive(Debug, Default)]
pub struct Witness(ArcSwapOption<String>);

impl Witness {
    /// Why the last connection that failed did, in librdkafka's words.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        self.0.load().as_deref().cloned()
    }

    /// The same, where waiting cannot mend it: a wrong password, or a certificate that one of the two does not trust.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.cause().filter(|cause| {
            let cause = cause.to_lowercase();
            ["authentication error", "authentication failed", "certificate", "mechanism"]
                .iter()
                .any(|word| cause.contains(word))
        })
    }

    fn note(&self, cause: &str) {
        // "[thrd:sasl_ssl://...]: sasl_ssl://host:port/bootstrap: ...": the thread is of no use to anybody.
        let cause =
            cause.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: ")).map_or(cause, |(_, rest)| rest);
        self.0.store(Some(std::sync::Arc::new(cause.to_owned())));
    }
}

impl ClientContext for Witness {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
        if facility == "FAIL" {
            self.note(message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, "kafka: {reason}");
        if matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL | RDKafkaErrorCode::BrokerTransportFailure)
        ) {
            self.note(reason);
        }
    }
}

impl ConsumerContext for Witness {}
