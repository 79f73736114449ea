//! Opens a transaction and aborts it, to find out whether a worker will be allowed to.

use rdkafka::{
    error::KafkaError,
    producer::{BaseProducer, Producer},
};

use super::{
    client::KafkaOptions,
    context::KafkaContext,
    producer::INIT_TIMEOUT,
    rights::Right,
    tokens::make,
    topics::{ANSWER_TIMEOUT, TopicError, not_allowed},
};

/// Opens a transaction and aborts it; nothing is written. Gives the id of the transaction.
///
/// The id is none of a lane's: a producer that begins with the id of another one fences it, and would stop a worker that
/// runs. It begins as theirs do, so that the right that they need (WRITE on the prefix, docs/security.md) is the one that is
/// tried.
///
/// # Errors
/// The right is missing, or no coordinator answers. It blocks for up to 25 s.
pub fn try_one(options: &KafkaOptions) -> Result<String, TopicError> {
    // What the ids of all lanes of this instance begin with; what follows is the lane's number.
    let first = options.transactional_id(0);
    let prefix = first.strip_suffix('0').unwrap_or(&first).to_owned();
    let id = format!("{prefix}check");
    let mut config = options.producer(0);
    config.set("transactional.id", &id);
    let producer: BaseProducer<KafkaContext> = make(&config, options, Producer::client).map_err(TopicError::Client)?;
    let opened = producer
        .init_transactions(INIT_TIMEOUT)
        .and_then(|()| producer.begin_transaction())
        .and_then(|()| producer.abort_transaction(ANSWER_TIMEOUT));
    match opened {
        Ok(()) => Ok(id),
        Err(error) => Err(refused(options, prefix, &error)),
    }
}

fn refused(options: &KafkaOptions, prefix: String, error: &KafkaError) -> TopicError {
    let code = error.rdkafka_error_code();
    match code.and_then(|code| options.right_to_write(0, code, None)) {
        Some(Right::WriteTransactionalId(_)) => not_allowed(options, vec![Right::WriteTransactionalIds { prefix }]),
        Some(right) => not_allowed(options, vec![right]),
        None => TopicError::NoTransaction { brokers: options.brokers.clone(), reason: error.to_string() },
    }
}
