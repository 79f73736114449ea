//! The identity of a topic: whether it is still the one that is being read.
//!
//! A topic that is deleted and recreated has the old offsets again. librdkafka goes on in the new one by itself, and neither
//! a record nor an offset tells; only the topic's id does, which a broker is asked for.

use std::{
    ffi::CString,
    time::{Duration, Instant},
};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use weir_core::basis::origin::TopicId;

use super::{context::KafkaClient, native::answers::Answers};

/// How often it is looked at while a topic is read: how long records of a recreated topic may be taken for its predecessor's.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

pub(super) struct Identity {
    answers: Answers,
    topic: CString,
    known: TopicId,
    taken_up: TopicId,
    /// A broker that has answered.
    broker: Option<i32>,
    asked_at: Option<Instant>,
    is_asked: bool,
}

impl Identity {
    pub(super) fn new(client: &KafkaClient, topic: CString) -> Result<Self, String> {
        Ok(Self {
            answers: Answers::new(client)?,
            topic,
            known: TopicId::UNKNOWN,
            taken_up: TopicId::UNKNOWN,
            broker: None,
            asked_at: None,
            is_asked: false,
        })
    }

    /// The id as of the last [`Identity::ask`].
    pub(super) const fn known(&self) -> TopicId {
        self.known
    }

    /// The topic that is known is read from now on.
    pub(super) const fn take_up(&mut self) {
        self.taken_up = self.known;
    }

    /// Goes on where another client's ends.
    pub(super) const fn succeed(&mut self, other: &Self) {
        self.taken_up = other.taken_up;
    }

    /// Whether another topic of this name was read before.
    pub(super) fn is_recreated(&self) -> bool {
        self.taken_up != TopicId::UNKNOWN && self.taken_up != self.known
    }

    /// Asks for the id and waits for it: from now on it is the one that is known.
    pub(super) fn ask(&mut self, client: &KafkaClient) -> Result<TopicId, KafkaError> {
        let metadata = client.fetch_metadata(self.topic.to_str().ok(), ANSWER_TIMEOUT)?;
        self.broker = Some(metadata.orig_broker_id()).filter(|broker| *broker >= 0);
        // An answer that is still to come was asked for earlier.
        self.answers = Answers::new(client).map_err(|_| KafkaError::AdminOp(RDKafkaErrorCode::Fail))?;
        self.is_asked = false;
        self.asked_at = Some(Instant::now());
        self.answers.ask_topic_id(client, &self.topic, self.broker, ANSWER_TIMEOUT);
        let answer = self.answers.topic_id(ANSWER_TIMEOUT).unwrap_or(Err(RDKafkaErrorCode::OperationTimedOut));
        self.known = answer.map_err(KafkaError::AdminOp)?;
        Ok(self.known)
    }

    /// Looks now and then whether the topic is another one. Never waits.
    pub(super) fn is_another(&mut self, client: &KafkaClient) -> bool {
        if self.is_asked {
            let Some(answer) = self.answers.topic_id(Duration::ZERO) else { return false };
            self.is_asked = false;
            if answer.is_err() {
                // Of a topic that is gone, or of brokers that are, the group and the reader hear by themselves.
                self.broker = None;
            }
            return answer.is_ok_and(|id| id != self.known);
        }
        if self.asked_at.is_some_and(|at| at.elapsed() >= LOOK_EVERY) {
            self.answers.ask_topic_id(client, &self.topic, self.broker, ANSWER_TIMEOUT);
            (self.is_asked, self.asked_at) = (true, Some(Instant::now()));
        }
        false
    }
}
