//! A broker that lets in whoever shows a token, and asks for the next one before it ends.

use anyhow::Result;

use super::{
    Kafka, KafkaClient,
    broker::{Additions, Shape},
};
use crate::ports::Port;

/// One broker whose second door takes unsigned tokens (JWS without a signature), as Kafka does for tests. Whoever comes there is
/// the user that the token names. The broker ends a connection whose token ends without another being shown.
#[derive(Debug)]
pub struct TokenKafka {
    kafka: Kafka,
    door: Port,
}

impl TokenKafka {
    pub fn start() -> Result<Self> {
        let door = Port::lease()?;
        let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;";
        let properties = [
            ("listener.name.token.sasl.enabled.mechanisms", "OAUTHBEARER"),
            ("listener.name.token.oauthbearer.sasl.jaas.config", module),
            // A session is as long as the token at the most, and no longer than this.
            ("listener.name.token.oauthbearer.connections.max.reauth.ms", "3600000"),
        ];
        let listeners = vec![("TOKEN", door.number(), "SASL_PLAINTEXT")];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let additions = Additions { listeners, properties, ..Additions::default() };
        let kafka = Kafka::start_with(vec![Port::lease()?], Shape::default(), &additions)?;
        Ok(Self { kafka, door })
    }

    /// A client that comes by the open door.
    pub fn admin(&self) -> &KafkaClient {
        self.kafka.client()
    }

    /// Where tokens are asked for.
    pub fn door(&self) -> String {
        format!("127.0.0.1:{}", self.door.number())
    }
}
