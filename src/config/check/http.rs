//! `[http]`.

use std::{net::SocketAddr, num::NonZeroU32, path::Path};

use weir_core::document::{
    Node,
    value::{Parsed, text, whole},
};

use super::{MINUTE, SECOND, parse::between, secret};
use crate::config::{HttpSettings, Secret, layers::Layers};

pub(super) fn settings(layers: &Layers<'_>, folder: &Path) -> Option<HttpSettings> {
    let listen = layers.get("http.listen", address);
    let tokens = tokens(layers, folder);
    let threads = layers.get("http.threads", |node| whole(node, 1..=64_u16));
    let connections = layers.get("http.connections", |node| whole(node, 10..=100_000_u32));
    let concurrency = layers.get("http.concurrency", |node| whole(node, 1..=10_000_u32));
    let rate = layers.get("http.rate", |node| whole(node, 0..=1_000_000_u32));
    let burst = layers.get("http.burst", |node| whole(node, 1..=1_000_000_u32));
    let body_bytes = layers.get("http.body_bytes", |node| whole(node, 1024..=16_777_216_u32));
    let timeout = layers.get("http.timeout", |node| between(node, SECOND / 10, 5 * MINUTE));
    let read_timeout = layers.get("http.read_timeout", |node| between(node, SECOND / 10, 5 * MINUTE));
    Some(HttpSettings {
        listen: listen?,
        tokens: tokens?,
        threads: usize::from(threads?),
        connections: usize::try_from(connections?).ok()?,
        concurrency: usize::try_from(concurrency?).ok()?,
        rate: NonZeroU32::new(rate?),
        burst: NonZeroU32::new(burst?)?,
        body_bytes: usize::try_from(body_bytes?).ok()?,
        timeout: timeout?,
        read_timeout: read_timeout?,
    })
}

fn address(node: &Node) -> Parsed<SocketAddr> {
    let text = text(node)?;
    let how = || format!("must be an IP address and port, such as \"127.0.0.1:8080\" or \"[::]:8080\", not {text:?}");
    text.parse::<SocketAddr>().map_err(|_| how())
}

/// The tokens, of which there are several with commas while one is replaced by another. Errors never show one.
fn tokens(layers: &Layers<'_>, folder: &Path) -> Option<Vec<Secret>> {
    const KEYS: [&str; 2] = ["http.token", "http.token_file"];
    let Some(given) = secret(layers, KEYS[0], KEYS[1], folder) else { return Some(Vec::new()) };
    let tokens: Vec<&str> = given.expose().split(',').map(str::trim).collect();
    if tokens.iter().all(|token| is_token68(token)) {
        return Some(tokens.into_iter().map(Secret::new).collect());
    }
    let key = if layers.optional(KEYS[0], |_| Ok(())).is_some() { KEYS[0] } else { KEYS[1] };
    layers.note(
        key,
        "must be letters, digits and -._~+/ with = at the end at most, as a bearer token has to be (RFC 6750), or several \
         such with commas",
    );
    None
}

/// What may stand behind `Bearer ` in a header.
fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty() && body.chars().all(|c| c.is_ascii_alphanumeric() || "-._~+/".contains(c))
}
