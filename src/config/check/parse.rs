//! Values of more than one section.

use std::{io::Read, ops::RangeInclusive, path::Path, time::Duration};

use weir_core::document::{
    Node,
    value::{Parsed, duration, in_words, text},
};

use crate::{
    authorities::Authorities,
    config::{Secret, Source},
};

/// The largest file that a secret is read from, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// The largest file of certificate authorities, in bytes: those of a whole system take some 250 kB.
const MAX_AUTHORITIES_BYTES: u64 = 2 * 1024 * 1024;

/// A length of time within bounds.
pub(super) fn between(node: &Node, least: Duration, most: Duration) -> Parsed<Duration> {
    let found = duration(node)?;
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    let words = |length: Duration| in_words(i64::try_from(length.as_millis()).unwrap_or(i64::MAX));
    Err(format!("must be from {} to {}, not {}", words(least), words(most), words(found)))
}

/// An amount of memory within bounds, in bytes: `300MiB`, `1 GB`.
pub(super) fn bytes_between(node: &Node, range: RangeInclusive<u64>) -> Parsed<u64> {
    const UNITS: [(&str, u64); 6] =
        [("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("kb", 1_000), ("mb", 1_000_000), ("gb", 1_000_000_000)];
    let text = text(node)?;
    let how = || format!("must be an amount of memory such as \"300MiB\" or \"1GB\", not {text:?}");
    let lower = text.to_ascii_lowercase();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?.trim(), *unit))).ok_or_else(how)?;
    let number: u64 = number.parse().map_err(|_| how())?;
    let bytes = number.checked_mul(unit).ok_or_else(how)?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(format!("must be from {} MiB to {} MiB, not {text:?}", mib(*range.start()), mib(*range.end())))
}

/// A file, relative to the configuration's folder, or `s3://bucket/key`.
pub(super) fn source(node: &Node, folder: &Path) -> Parsed<Source> {
    let text = text(node)?;
    let Some(rest) = text.strip_prefix("s3://") else {
        return match text.split_once("://") {
            Some((scheme, _)) => Err(format!("must be a file or s3://bucket/key; weir cannot read {scheme}://")),
            None => Ok(Source::File(folder.join(text))),
        };
    };
    match rest.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
            Ok(Source::S3 { bucket: bucket.to_owned(), key: key.to_owned() })
        }
        Some(_) | None => Err(format!("must name a bucket and a key, s3://bucket/key, not {text:?}")),
    }
}

/// A JSON pointer (RFC 6901) to a field.
pub(super) fn pointer(node: &Node) -> Parsed<String> {
    let text = text(node)?;
    let escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    if text.starts_with('/') && escapes {
        return Ok(text.to_owned());
    }
    Err(format!(
        "must be a JSON pointer such as \"/recipient/id\" (with ~1 for / and ~0 for ~ in a name), not {text:?}"
    ))
}

/// The certificate authorities in a file.
pub(super) fn authorities(path: &Path) -> Parsed<Authorities> {
    let cannot = |error: std::io::Error| format!("names {}, which cannot be read: {error}", path.display());
    let mut pem = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_AUTHORITIES_BYTES + 1).read_to_end(&mut pem).map_err(cannot)?;
    if pem.len() as u64 > MAX_AUTHORITIES_BYTES {
        return Err(format!("names {}, which is larger than {MAX_AUTHORITIES_BYTES} bytes", path.display()));
    }
    Authorities::parse(pem).map_err(|error| format!("names {}, which {error}", path.display()))
}

/// The secret in a file, without the line's end.
pub(super) fn secret_file(path: &Path) -> Parsed<Secret> {
    let cannot = |error: std::io::Error| format!("names {}, which cannot be read: {error}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_SECRET_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_SECRET_BYTES {
        return Err(format!("names {}, which is larger than {MAX_SECRET_BYTES} bytes", path.display()));
    }
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("names {}, which is empty", path.display())),
        secret if secret.chars().any(char::is_control) => {
            Err(format!("names {}, which has more than one line, or control characters", path.display()))
        }
        secret => Ok(Secret::new(secret)),
    }
}
