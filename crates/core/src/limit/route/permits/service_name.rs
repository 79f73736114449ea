//! Names of services and their instances.

use std::{fmt, sync::Arc};

/// The longest name, in bytes.
const MAX_BYTES: usize = 64;

/// The name of a service or of one of its instances: 1 to 64 ASCII letters, digits, `.`, `_` and `-`, so that it needs no quoting in
/// paths, labels and Redis keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// `None` where the text is no such name.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(is_known)).then(|| Self(text.into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_no_quoting() {
        for text in ["a", "hedwig-email", "A.b_c-9", &"x".repeat(64)] {
            assert_eq!(ServiceName::new(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "a/b", "a:b", "é", "a\n", &"x".repeat(65)] {
            assert_eq!(ServiceName::new(text), None, "{text:?}");
        }
    }
}
