//! The context of all clients: it turns librdkafka's logs and errors into ours, remembers why brokers could not be talked to, and notes
//! what the group asks for.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use rdkafka::{
    ClientContext, Message, TopicPartitionList,
    client::{Client, OAuthToken},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext, ConsumerGroupMetadata},
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::{NoCustomPartitioner, ProducerContext},
    types::RDKafkaRespErr,
};

use super::{
    client::KafkaOptions,
    native::answers::Generation,
    tokens::{self, TokenSource},
};

/// What librdkafka knows a client by.
pub type KafkaClient = Client<KafkaContext>;
/// A consumer of a lane, of a reader, or of one who only asks.
pub type KafkaConsumer = BaseConsumer<KafkaContext>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDelivery {
    pub code: RDKafkaErrorCode,
    pub topic: String,
}

/// What a consumer's group asked for and what is not yet taken up.
#[derive(Default)]
pub enum Pending {
    #[default]
    Nothing,
    Assign {
        /// All that are this member's.
        partitions: TopicPartitionList,
        /// The member and the generation that they were given to.
        membership: Option<Arc<ConsumerGroupMetadata>>,
        /// The same generation, to be compared with a later one.
        generation: Generation,
    },
    Revoke,
}

/// Context of a client. A consumer's rebalances are only noted here: the lane takes them up when nothing is being committed (librdkafka
/// lets the application answer a rebalance whenever it is ready).
#[derive(Default)]
pub struct KafkaContext {
    pending: ArcSwap<Pending>,
    closing: AtomicBool,
    failed_delivery: ArcSwapOption<FailedDelivery>,
    /// Why the last connection that failed did. librdkafka tells its log alone: a call that waits for a broker only says that its time is
    /// up.
    cause: ArcSwapOption<String>,
    /// The last thing that was not allowed.
    denied: ArcSwapOption<RDKafkaErrorCode>,
    tokens: TokenSource,
}

impl KafkaContext {
    pub fn of(options: &KafkaOptions) -> Self {
        Self { tokens: options.tokens.clone(), ..Self::default() }
    }

    pub fn pending(&self) -> Arc<Pending> {
        self.pending.load_full()
    }

    pub fn taken_up(&self) {
        self.pending.store(Arc::new(Pending::Nothing));
    }

    /// All partitions are to be given up, though the group has not said so.
    pub fn revoke(&self) {
        self.pending.store(Arc::new(Pending::Revoke));
    }

    /// From now on every rebalance gives all partitions up at once: the consumer is being closed.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// The first of the records that were not delivered since the last call, if there was one.
    #[must_use]
    pub fn take_failed_delivery(&self) -> Option<FailedDelivery> {
        self.failed_delivery.swap(None).map(Arc::unwrap_or_clone)
    }

    /// Why the last connection that failed did, in librdkafka's words.
    pub fn cause(&self) -> Option<String> {
        self.cause.load().as_deref().cloned()
    }

    /// The same, where waiting cannot mend it: a wrong password, or a certificate that one of the two does not trust.
    pub fn refusal(&self) -> Option<String> {
        const WORDS: [&str; 4] = ["authentication error", "authentication failed", "certificate", "mechanism"];
        self.cause().filter(|cause| WORDS.iter().any(|word| cause.to_lowercase().contains(word)))
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

impl ClientContext for KafkaContext {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        tokens::next(&self.tokens)
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::error!(facility, "{message}");
            }
            RDKafkaLogLevel::Warning => tracing::warn!(facility, "{message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "{message}"),
            RDKafkaLogLevel::Debug => tracing::debug!(facility, "{message}"),
        }
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

impl ConsumerContext for KafkaContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        if self.closing.load(Ordering::Acquire) {
            if let Err(error) = consumer.unassign() {
                tracing::warn!(%error, "could not give partitions up while closing");
            }
            return;
        }
        let pending = if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let membership = consumer.group_metadata().map(Arc::new);
            let generation = Generation::now(consumer.client());
            Pending::Assign { partitions: partitions.clone(), membership, generation }
        } else {
            Pending::Revoke
        };
        self.pending.store(Arc::new(pending));
    }
}

impl ProducerContext<NoCustomPartitioner> for KafkaContext {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, record)) = result
            && self.failed_delivery.load().is_none()
        {
            tracing::warn!(%error, topic = record.topic(), "a record was not taken by the broker");
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            let failed = FailedDelivery { code, topic: record.topic().to_owned() };
            self.failed_delivery.store(Some(Arc::new(failed)));
        }
    }
}
