//! Requests of Kafka's protocol that librdkafka has no call for, or none that is safe Rust; Kafka's own tools are the start of a JVM.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use anyhow::{Context, Result, ensure};
use bytes::{Buf as _, BufMut as _, Bytes};

use super::{KafkaClient, client::REQUEST_DEADLINE};

/// <https://kafka.apache.org/protocol#The_Messages_AlterClientQuotas>, in version 0.
const ALTER_CLIENT_QUOTAS: [i16; 2] = [49, 0];

/// The head of a request of this kind and version.
pub(super) fn request([kind, version]: [i16; 2]) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    request.put_i16(kind);
    request.put_i16(version);
    // The number of the request, the only one of its connection.
    request.put_i32(0);
    put_text(&mut request, "testkit")?;
    Ok(request)
}

/// Adds a text: its length before it.
pub(super) fn put_text(request: &mut Vec<u8>, text: &str) -> Result<()> {
    request.put_i16(i16::try_from(text.len())?);
    request.put_slice(text.as_bytes());
    Ok(())
}

/// Takes the text that is next; null is empty.
pub(super) fn take_text(answer: &mut Bytes) -> Result<String> {
    let length = usize::try_from(answer.try_get_i16()?).unwrap_or(0);
    ensure!(length <= answer.len(), "an answer ends in a text");
    Ok(String::from_utf8(answer.split_to(length).into())?)
}

/// Takes an error code and its words.
pub(super) fn take_outcome(answer: &mut Bytes) -> Result<()> {
    let (code, words) = (answer.try_get_i16()?, take_text(answer)?);
    ensure!(code == 0, "the broker refused: error {code}: {words}");
    Ok(())
}

impl KafkaClient {
    /// What the first broker that can be reached answers to a request, behind the time by which it was throttled.
    pub(super) fn answer_to(&self, request: &[u8]) -> Result<Bytes> {
        let mut addresses = self.bootstrap().split(',').filter_map(|address| address.parse().ok());
        let connected = addresses.find_map(|address| TcpStream::connect_timeout(&address, REQUEST_DEADLINE).ok());
        let mut broker = connected.with_context(|| format!("no broker can be reached at {}", self.bootstrap()))?;
        broker.set_read_timeout(Some(REQUEST_DEADLINE))?;
        broker.write_all(&[&i32::try_from(request.len())?.to_be_bytes()[..], request].concat())?;
        let mut length = [0; 4];
        broker.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        broker.read_exact(&mut answer)?;
        let mut answer = Bytes::from(answer);
        let (_number, _throttled_ms) = (answer.try_get_i32()?, answer.try_get_i32()?);
        Ok(answer)
    }

    /// Lets clients of this `client.id` publish so many bytes per second.
    pub fn throttle_producers(&self, client_id: &str, bytes_a_second: u32) -> Result<()> {
        let mut request = request(ALTER_CLIENT_QUOTAS)?;
        // One entry, of one entity, with one value.
        request.put_i32(1);
        request.put_i32(1);
        put_text(&mut request, "client-id")?;
        put_text(&mut request, client_id)?;
        request.put_i32(1);
        put_text(&mut request, "producer_byte_rate")?;
        request.put_f64(bytes_a_second.into());
        // The value is not removed, and the change is made.
        request.put_slice(&[0, 0]);
        let mut answer = self.answer_to(&request)?;
        let _entries = answer.try_get_i32()?;
        take_outcome(&mut answer).context("a quota was not set")
    }
}
