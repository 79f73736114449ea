//! The checks of addresses and URLs. Errors are sentences that go on after the key: "must be ...".

use std::net::Ipv6Addr;

use weir_core::basis::document::{
    Node,
    value::{Parsed, text_up_to, texts_up_to},
};

use super::{
    Secret,
    layers::Layers,
    values::{MAX_SECRET_BYTES, text_that},
};

/// The longest list of brokers, in bytes. Three hosts of a managed Kafka have more than 200.
const MAX_BROKERS_BYTES: usize = 16 * 1024;

/// Brokers. librdkafka reads something else out of a typing error: the port 9092 in `kafka:9092x`, this machine in `:9092`.
pub(super) fn brokers(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let text = text_up_to(node, MAX_BROKERS_BYTES)?;
    if text.split(',').all(|broker| is_broker(broker.trim())) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "must be host:port, several with commas, an IPv6 address in brackets, not {text:?}; TLS is set by \"security.protocol\" in \
         [kafka.properties]"
    ))
}

/// Whether this is `host`, `host:port`, `[IPv6 address]` or `[IPv6 address]:port`.
fn is_broker(broker: &str) -> bool {
    let in_brackets = broker.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (is_host, rest) = match in_brackets {
        Some((address, rest)) => {
            let (address, _zone) = address.split_once('%').unwrap_or((address, ""));
            (address.parse::<Ipv6Addr>().is_ok(), rest)
        }
        None => {
            let (host, rest) = broker.split_at(broker.find(':').unwrap_or(broker.len()));
            (!host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), rest)
        }
    };
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    is_host && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// URLs of one scheme. A URL may have a password in it, so errors name its number.
pub(super) fn nodes(node: &Node, _: &Layers<'_>) -> Parsed<Vec<Secret>> {
    let urls = texts_up_to(node, MAX_SECRET_BYTES)?;
    let mut schemes = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        if let Some(reason) = refused(url) {
            return Err(format!("[{index}] {reason}"));
        }
        let parsed = redis::parse_redis_url(url).filter(|parsed| parsed.has_host());
        let scheme = parsed.map(|parsed| parsed.scheme().to_owned());
        match scheme.filter(|scheme| scheme == "redis" || scheme == "rediss") {
            Some(scheme) => schemes.push(scheme),
            None => return Err(format!("[{index}] must be redis://host:port, or rediss://host:port for TLS")),
        }
    }
    schemes.dedup();
    if schemes.len() > 1 {
        return Err("must all be redis:// or all be rediss://".into());
    }
    Ok(urls.into_iter().map(Secret::new).collect())
}

/// What is wrong with a URL whose user or password has a character that ends the part of a URL which they are in, or that has a query or a
/// fragment: other clients read `?db=2` and `?password=...`, and the one here ignores them.
fn refused(url: &str) -> Option<&'static str> {
    let (_, rest) = url.split_once("://")?;
    let behind = &rest[rest.find(['/', '?', '#']).unwrap_or(rest.len())..];
    if behind.contains('@') {
        return Some(
            "has a user or password that must be percent-encoded: %40 is @, %23 #, %2F /, %3F ?, %25 %. Or set \
             redis.username and redis.password_file",
        );
    }
    let database = behind.strip_prefix('/').unwrap_or(behind);
    let is_number = database.is_empty() || database.parse::<i64>().is_ok();
    (!is_number).then_some(
        "must have nothing behind the port but the number of a database, as in redis://host:port/2: there are settings for all else",
    )
}

pub(super) fn http_url(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let is_url = |text: &str| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#']))
    };
    text_that(node, is_url, "a URL that begins with http:// or https://, without `?` and `#`")
}
