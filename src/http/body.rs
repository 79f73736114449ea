//! Reading a request's body, within bounds, and what its head says of it.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::problem::Problem;

/// How much more than the limit is read and thrown away, so that a client that sends before it listens sees the answer
/// and not a broken connection.
const DRAIN_BYTES: usize = 4 << 20;

/// The body, of `limit` bytes at most, within `patience`.
pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|announced| announced > limit + DRAIN_BYTES) {
        return Err(too_large(limit));
    }
    timeout(patience, collect(body, limit)).await.unwrap_or_else(|_| Err(too_slow()))
}

async fn collect(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut seen) = (Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::bad_request("body", "the body broke off before its end"))?;
        seen += chunk.len();
        if seen <= limit {
            bytes.extend_from_slice(&chunk);
        } else if seen > limit + DRAIN_BYTES {
            break;
        }
    }
    if seen > limit { Err(too_large(limit)) } else { Ok(bytes.into()) }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("the body may have {limit} bytes at most (http.body_bytes)");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

fn too_slow() -> Problem {
    let problem =
        Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", "the body did not come within http.read_timeout");
    problem.with(header::CONNECTION, HeaderValue::from_static("close"))
}

/// The body's media type, if it is one that is read. A form's is not: any page in a browser could send one here.
pub(super) fn content_type<'h>(headers: &'h HeaderMap, known: &[&str]) -> Result<&'h [u8], Problem> {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if known.iter().any(|known| media_type.eq_ignore_ascii_case(known.as_bytes())) {
        return Ok(value);
    }
    let detail = format!("the header Content-Type must be {}", known.join(" or "));
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail))
}

/// A body that is compressed would be read as no JSON, and with a bound on the wrong size.
pub(super) fn uncompressed(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter().map(|coding| coding.as_bytes().trim_ascii());
    if codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let detail = "the body must not be compressed: send it without Content-Encoding";
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", detail);
    Err(problem.with(header::ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}
