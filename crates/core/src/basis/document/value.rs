//! From a node to a value of a type. Errors are sentences that go on after the key: "must be ...".

use std::{ops::RangeInclusive, time::Duration};

use super::{Node, Value};

/// What a node turned into, or what it must be.
pub type Parsed<T> = Result<T, String>;

/// The known name that a mistyped one is nearest to, if any is near.
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    /// Below it, two names have little in common (Jaro-Winkler, 0 to 1).
    const NEAR: f64 = 0.8;
    let near = known.into_iter().map(|name| (strsim::jaro_winkler(typed, name), name));
    near.filter(|(likeness, _)| *likeness >= NEAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// What kind of value a node holds, for an error.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Flag(flag) => flag.to_string(),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => number.clone(),
        Value::Text(text) => format!("{text:?}"),
        Value::Date(date) => format!("the date {date}"),
        Value::List(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
    }
}

/// "must be X, not Y".
pub fn must_be(what: &str, node: &Node) -> String {
    format!("must be {what}, not {}", shown(node))
}

/// The longest string, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;

/// A string with at least one character and no control characters, of at most [`MAX_TEXT_BYTES`].
pub fn text(node: &Node) -> Parsed<&str> {
    text_up_to(node, MAX_TEXT_BYTES)
}

/// A string like that of [`text`], of at most `most_bytes`: addresses, paths and secrets are longer than names.
pub fn text_up_to(node: &Node, most_bytes: usize) -> Parsed<&str> {
    let Value::Text(text) = &node.value else { return Err(must_be("a string", node)) };
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    if text.len() > most_bytes {
        return Err(format!("must not be longer than {most_bytes} bytes; it has {}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("must not have control characters in it, such as a line's end".into());
    }
    Ok(text)
}

pub fn whole<T: TryFrom<i128> + Copy + Into<i128>>(node: &Node, range: RangeInclusive<T>) -> Parsed<T> {
    let (first, last): (i128, i128) = ((*range.start()).into(), (*range.end()).into());
    let found = if let Value::Whole(number) = node.value { Some(number) } else { None };
    match found.filter(|number| (first..=last).contains(number)).and_then(|number| T::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => Err(must_be(&format!("a whole number from {first} to {last}"), node)),
    }
}

pub fn flag(node: &Node) -> Parsed<bool> {
    if let Value::Flag(flag) = node.value { Ok(flag) } else { Err(must_be("true or false", node)) }
}

/// The pattern of a length of time, for schemas: what [`duration_or_zero`] reads.
pub const DURATION_PATTERN: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|years?|yrs?|y)\s*)+$";

/// A length of time above 0, such as `24h` or `90m`, in milliseconds; at most ten years.
pub fn duration(node: &Node) -> Parsed<Duration> {
    let duration = duration_or_zero(node)?;
    if duration.is_zero() { Err("must be longer than 0".into()) } else { Ok(duration) }
}

/// The same, or 0.
pub fn duration_or_zero(node: &Node) -> Parsed<Duration> {
    const MAX_DAYS: u64 = 3_660;
    const HOW: &str = "a length of time such as \"24h\", \"7d\", \"90m\" or \"500ms\"";
    let Value::Text(text) = &node.value else { return Err(must_be(HOW, node)) };
    let Ok(duration) = humantime::parse_duration(text) else { return Err(must_be(HOW, node)) };
    if has_months_as_m(text) {
        return Err(format!("must be in m (minutes) or months, not in M: {text:?}"));
    }
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("must be whole milliseconds, not {text:?}"));
    }
    if duration > Duration::from_secs(MAX_DAYS * 24 * 60 * 60) {
        return Err(format!("must not be longer than {MAX_DAYS} days, not {text:?}"));
    }
    Ok(duration)
}

/// Whether a length of time has the unit `M`: months to the library, and minutes to many who write it.
fn has_months_as_m(text: &str) -> bool {
    text.contains('M')
}

/// A length of time such as `24h`, as a command line gives it.
pub fn length(text: &str) -> Parsed<Duration> {
    let length = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if has_months_as_m(text) { Err("write m for minutes, or months".to_owned()) } else { Ok(length) }
}

/// [`duration`] as milliseconds.
pub fn duration_ms(node: &Node) -> Parsed<i64> {
    duration(node).map(|duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// One of some words; else what it must be, with the nearest word.
pub fn one_of<T: Copy>(node: &Node, words: &[(&str, T)]) -> Parsed<T> {
    let all = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    let Value::Text(text) = &node.value else { return Err(must_be(&format!("one of {all}"), node)) };
    if let Some((_, value)) = words.iter().find(|(word, _)| word == text) {
        return Ok(*value);
    }
    let hint = nearest(text, words.iter().map(|(word, _)| *word));
    let hint = hint.map_or(String::new(), |word| format!("; did you mean {word:?}?"));
    Err(format!("must be one of {all}, not {text:?}{hint}"))
}

/// One string, or a list of strings with at least one.
pub fn texts(node: &Node) -> Parsed<Vec<&str>> {
    texts_up_to(node, MAX_TEXT_BYTES)
}

/// Strings like those of [`texts`], of at most `most_bytes` each.
pub fn texts_up_to(node: &Node, most_bytes: usize) -> Parsed<Vec<&str>> {
    if let Value::Text(_) = node.value {
        return Ok(vec![text_up_to(node, most_bytes)?]);
    }
    let Value::List(items) = &node.value else { return Err(must_be("a string or a list of strings", node)) };
    if items.is_empty() {
        return Err("must not be an empty list: leave the key out for all, or name at least one".into());
    }
    let number = |(index, item)| text_up_to(item, most_bytes).map_err(|error| format!("[{index}] {error}"));
    items.iter().enumerate().map(number).collect()
}

/// A length of time in words: `8d`, `31d 1h`, `90s` as `1m 30s`.
pub fn in_words(millis: i64) -> String {
    const UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut left = millis;
    let mut words = Vec::new();
    for (unit, unit_ms) in UNITS {
        if left >= unit_ms {
            words.push(format!("{}{unit}", left / unit_ms));
            left %= unit_ms;
        }
    }
    if words.is_empty() { "0s".into() } else { words.join(" ") }
}
