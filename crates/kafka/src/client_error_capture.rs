//! A context for clients that ask once: it remembers why brokers could not be talked to, which librdkafka tells its
//! log alone. (A call that waits for a broker only says that its time is up.)

use std::{error::Error, sync::Arc};

use arc_swap::ArcSwapOption;
use rdkafka::{
    ClientContext,
    client::OAuthToken,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError, RDKafkaErrorCode},
};

use super::{
    client::KafkaOptions,
    lane_context,
    tokens::{self, ShowsTokens, TokenSource},
};

/// Remembers the last failure of a connection, and the last thing that was not allowed.
#[derive(Debug, Default)]
pub struct ClientErrorCapture {
    cause: ArcSwapOption<String>,
    denied: ArcSwapOption<RDKafkaErrorCode>,
    tokens: TokenSource,
}

impl ClientErrorCapture {
    pub fn of(options: &KafkaOptions) -> Self {
        Self { tokens: options.tokens.clone(), ..Self::default() }
    }

    /// Why the last connection that failed did, in librdkafka's words.
    pub fn cause(&self) -> Option<String> {
        self.cause.load().as_deref().cloned()
    }

    /// The same, where waiting cannot mend it: a wrong password, or a certificate that one of the two does not trust.
    pub fn refusal(&self) -> Option<String> {
        self.cause().filter(|cause| {
            let cause = cause.to_lowercase();
            ["authentication error", "authentication failed", "certificate", "mechanism"]
                .iter()
                .any(|word| cause.contains(word))
        })
    }

    /// The refusal that librdkafka tries to overcome by asking again, as that of a group's coordinator.
    pub fn denied(&self) -> Option<RDKafkaErrorCode> {
        self.denied.load().as_deref().copied()
    }

    fn note(&self, cause: &str) {
        // "[thrd:sasl_ssl://...]: sasl_ssl://host:port/bootstrap: ...": the thread is of no use to anybody.
        let cause =
            cause.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: ")).map_or(cause, |(_, rest)| rest);
        self.cause.store(Some(Arc::new(cause.to_owned())));
    }
}

impl ShowsTokens for ClientErrorCapture {
    fn tokens(&self) -> &TokenSource {
        &self.tokens
    }
}

impl ClientContext for ClientErrorCapture {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        tokens::next(&self.tokens)
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        lane_context::log(level, facility, message);
        if facility == "FAIL" {
            self.note(message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, "kafka: {reason}");
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => self.note(reason),
            Some(code @ (RDKafkaErrorCode::GroupAuthorizationFailed | RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                self.denied.store(Some(Arc::new(code)))
            }
            _ => {}
        }
    }
}

impl ConsumerContext for ClientErrorCapture {}
