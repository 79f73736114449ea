//! The filter of log lines. The library takes a word that is no level for a part of the program, and logs nothing else.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use weir_core::basis::document::{nearest, value::Parsed};

/// The levels, and the word for none.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

pub(crate) fn check(text: &str) -> Parsed<String> {
    let wrong = |reason: String| format!("must be a level or a filter such as \"info,weir_kafka=debug\": {reason}");
    EnvFilter::builder().parse(text).map_err(|error| wrong(error.to_string()))?;
    // Names of spans and fields, which may have commas.
    if text.contains('[') {
        return Ok(text.to_owned());
    }
    // With their spaces, which the library does not take off a level.
    let words: Vec<&str> = text.split(',').filter(|word| !word.is_empty()).collect();
    let alone: Vec<&str> = words.iter().copied().filter(|word| !word.contains('=')).collect();
    if let Some(word) = alone.iter().find(|word| word.parse::<LevelFilter>().is_err()) {
        let hint = nearest(word, LEVELS).map_or_else(String::new, |level| format!("; did you mean {level:?}?"));
        return Err(wrong(format!("{word:?} is none of {}{hint}", LEVELS.join(", "))));
    }
    if alone.is_empty() && !words.is_empty() {
        return Err(wrong("it has no level for what it does not name, and would log nothing of it".to_owned()));
    }
    Ok(text.to_owned())
}
