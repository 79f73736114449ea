//! A broker that lets nobody in without a password or a certificate, and nobody do what an ACL does not allow.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{
    Kafka, KafkaClient,
    broker::{Additions, Shape},
};
use crate::{
    ports::Port,
    tls::{Authority, text},
};

/// One broker with an authorizer. Its own door is open to the tests, which come there as the super user; the other two
/// demand TLS and a SCRAM password, or TLS and a client's certificate, whose common name is the user.
#[derive(Debug)]
pub struct SecuredKafka {
    /// `None`: another process keeps it.
    kafka: Option<Kafka>,
    admin: KafkaClient,
    scram: String,
    mutual: String,
    _ports: Vec<Port>,
}

impl SecuredKafka {
    /// Starts it with these SCRAM users and passwords, each under SHA-256 and SHA-512.
    pub fn start(authority: &Authority, users: &[(&str, &str)]) -> Result<Self> {
        Self::start_with_files(&authority.server("kafka")?.both, &authority.ca_file(), users)
    }

    /// The same with the key and certificate in one file, trusting the authorities in another: both PEM, and read at each start.
    pub fn start_with_files(key_and_certificate: &Path, trusted: &Path, users: &[(&str, &str)]) -> Result<Self> {
        let (scram, mutual) = (Port::lease()?, Port::lease()?);
        let module = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
        let properties = [
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("allow.everyone.if.no.acl.found", "false"),
            // Whoever comes by the open door: the broker itself, its controller and the tests.
            ("super.users", "User:ANONYMOUS"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", &text(key_and_certificate)),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", &text(trusted)),
            ("ssl.principal.mapping.rules", "RULE:^CN=([^,]+)$/$1/,DEFAULT"),
            ("listener.name.mutual.ssl.client.auth", "required"),
            ("listener.name.scram.sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512"),
            ("listener.name.scram.scram-sha-256.sasl.jaas.config", module),
            ("listener.name.scram.scram-sha-512.sasl.jaas.config", module),
        ];
        let credentials = users.iter().flat_map(|(name, password)| {
            ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(|mechanism| format!("{mechanism}=[name={name},password={password}]"))
        });
        let additions = Additions {
            listeners: vec![("SCRAM", scram.number(), "SASL_SSL"), ("MUTUAL", mutual.number(), "SSL")],
            properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
            format_args: credentials.flat_map(|one| ["--add-scram".to_owned(), one]).collect(),
        };
        let kafka = Kafka::start_with(vec![Port::lease()?], Shape::default(), &additions)?;
        let (admin, ports) = (kafka.client().clone(), [scram, mutual]);
        let [scram, mutual] = ports.each_ref().map(|port| format!("127.0.0.1:{}", port.number()));
        Ok(Self { kafka: Some(kafka), admin, scram, mutual, _ports: ports.into() })
    }

    /// The one of another process that has these [doors](Self::doors).
    pub fn behind(doors: &str) -> Result<Self> {
        let doors: Vec<&str> = doors.split(',').collect();
        let [open, scram, mutual] = doors[..] else { bail!("{doors:?} are not the three doors of a Kafka") };
        let (scram, mutual) = (scram.to_owned(), mutual.to_owned());
        Ok(Self { kafka: None, admin: KafkaClient::new(open), scram, mutual, _ports: Vec::new() })
    }

    pub fn doors(&self) -> String {
        [self.admin.bootstrap(), &self.scram, &self.mutual].join(",")
    }

    /// Kills the broker and starts it again, with its data: all connections end.
    pub fn restart(&mut self) -> Result<()> {
        self.kafka.as_mut().context("another process keeps this Kafka")?.restart(0)
    }

    pub fn admin(&self) -> &KafkaClient {
        &self.admin
    }

    /// Where passwords are asked for.
    pub fn scram(&self) -> String {
        self.scram.clone()
    }

    /// Where certificates are asked for.
    pub fn mutual(&self) -> String {
        self.mutual.clone()
    }
}
