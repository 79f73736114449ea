//! `[redis]`.

use std::path::Path;

use weir_core::document::{
    Node,
    value::{Parsed, flag, text, texts, whole},
};

use super::{DAY, MINUTE, SECOND, parse::between, path, secret};
use crate::config::{RedisSettings, RedisTls, Secret, layers::Layers};

pub(super) fn settings(layers: &Layers<'_>, folder: &Path) -> Option<RedisSettings> {
    let nodes = layers.get("redis.nodes", nodes);
    let username = layers.optional("redis.username", |node| text(node).map(str::to_owned));
    let password = secret(layers, "redis.password", "redis.password_file", folder);
    let tls = tls(layers, folder);
    let history = layers.get("redis.history", |node| between(node, MINUTE, 3_660 * DAY));
    let max_entries = layers.get("redis.max_entries", |node| whole(node, 200..=50_000_u32));
    let prefix = layers.get("redis.prefix", prefix);
    let shards = layers.get("redis.shards", |node| whole(node, 1..=16_384_u16));
    let users = layers.get("redis.users", |node| whole(node, 1..=10_000_000_000_u64));
    let tune = layers.get("redis.tune", flag);
    let allow_eviction = layers.get("redis.allow_eviction", flag);
    let wait_replicas = layers.get("redis.wait_replicas", |node| whole(node, 0..=10_u32));
    let timeout = layers.get("redis.timeout", |node| between(node, SECOND / 100, MINUTE));
    let unavailable_after = layers.optional("redis.unavailable_after", |node| {
        let least = 2 * timeout.unwrap_or_default();
        between(node, least, DAY).map_err(|reason| format!("{reason} (the least is twice redis.timeout)"))
    });
    Some(RedisSettings {
        nodes: nodes?,
        username,
        password,
        tls,
        history: history?,
        max_entries: max_entries?,
        prefix: prefix?,
        shards: shards?,
        users: users?,
        tune: tune?,
        allow_eviction: allow_eviction?,
        wait_replicas: wait_replicas?,
        timeout: timeout?,
        unavailable_after,
    })
}

/// URLs of one scheme. A URL may have a password in it, so errors name its number.
fn nodes(node: &Node) -> Parsed<Vec<Secret>> {
    let urls = texts(node)?;
    let mut schemes = Vec::new();
    for (index, url) in urls.iter().enumerate() {
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

fn prefix(node: &Node) -> Parsed<String> {
    const MAX_PREFIX_BYTES: usize = 64;
    let text = text(node)?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if text.len() <= MAX_PREFIX_BYTES && text.chars().all(fine) {
        return Ok(text.to_owned());
    }
    Err(format!("must be 1 to {MAX_PREFIX_BYTES} letters, digits, \"_\", \"-\" or \".\", not {text:?}"))
}

fn tls(layers: &Layers<'_>, folder: &Path) -> RedisTls {
    let file = |key| layers.optional(key, |node| path(node, folder));
    let (ca_file, certificate, key) = (file("redis.ca_file"), file("redis.cert_file"), file("redis.key_file"));
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            layers.note("redis.cert_file", "needs redis.key_file, the key of the certificate");
            None
        }
        (None, Some(_)) => {
            layers.note("redis.key_file", "needs redis.cert_file, the certificate of the key");
            None
        }
    };
    RedisTls { ca_file, client }
}
