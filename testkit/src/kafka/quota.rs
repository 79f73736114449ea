//! Quotas: librdkafka has no call for them, and Kafka's own tool is the start of a JVM.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use anyhow::{Context, Result, ensure};

use super::{KafkaClient, client::REQUEST_DEADLINE};

/// <https://kafka.apache.org/protocol#The_Messages_AlterClientQuotas>, in version 0.
const ALTER_CLIENT_QUOTAS: i16 = 49;
/// Where the error code of the only entry is in an answer: behind the correlation id, the throttle time and the number of entries.
const CODE: std::ops::Range<usize> = 12..14;

impl KafkaClient {
    /// Lets clients of this `client.id` publish so many bytes per second.
    pub fn throttle_producers(&self, client_id: &str, bytes_a_second: u32) -> Result<()> {
        let mut request = [ALTER_CLIENT_QUOTAS, 0].map(i16::to_be_bytes).concat();
        let correlation = 0_i32;
        request.extend(correlation.to_be_bytes());
        text(&mut request, "testkit")?;
        // One entry, of one entity, with one value.
        let one = 1_i32.to_be_bytes();
        request.extend([one, one].concat());
        text(&mut request, "client-id")?;
        text(&mut request, client_id)?;
        request.extend(one);
        text(&mut request, "producer_byte_rate")?;
        request.extend(f64::from(bytes_a_second).to_be_bytes());
        // The value is not removed, and the change is made.
        request.extend([0, 0]);

        let answer = self.answer_to(&request)?;
        let code = answer.get(CODE).and_then(|code| code.try_into().ok()).map(i16::from_be_bytes);
        ensure!(code == Some(0), "a quota was not set: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// What the first broker that can be reached answers to a request.
    fn answer_to(&self, request: &[u8]) -> Result<Vec<u8>> {
        let mut addresses = self.bootstrap().split(',').filter_map(|address| address.parse().ok());
        let connected = addresses.find_map(|address| TcpStream::connect_timeout(&address, REQUEST_DEADLINE).ok());
        let mut broker = connected.with_context(|| format!("no broker can be reached at {}", self.bootstrap()))?;
        broker.set_read_timeout(Some(REQUEST_DEADLINE))?;
        broker.write_all(&i32::try_from(request.len())?.to_be_bytes())?;
        broker.write_all(request)?;
        let mut length = [0; 4];
        broker.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        broker.read_exact(&mut answer)?;
        Ok(answer)
    }
}

/// Adds a text as the protocol has it: its length before it.
fn text(request: &mut Vec<u8>, text: &str) -> Result<()> {
    request.extend(i16::try_from(text.len())?.to_be_bytes());
    request.extend(text.as_bytes());
    Ok(())
}
