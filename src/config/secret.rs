//! What must never be printed.

use std::path::PathBuf;

use weir_core::basis::document::value::Parsed;

use super::{HttpSettings, KafkaSettings, values};

/// A password, a token, or a URL with one in it. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    pub path: PathBuf,
    /// What it held when the settings were read.
    pub secret: Secret,
}

impl SecretFile {
    /// The secret that it holds now.
    pub fn read(&self) -> Parsed<Secret> {
        values::read_secret(&self.path)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile {
    pub path: PathBuf,
    /// What it held when the settings were read.
    pub tokens: Vec<Secret>,
}

impl TokenFile {
    pub fn read(&self) -> Parsed<Vec<Secret>> {
        values::read_tokens(&self.path)
    }
}

impl KafkaSettings {
    /// The properties of librdkafka, given or from their files.
    pub fn properties(&self) -> impl Iterator<Item = (&String, &Secret)> {
        self.properties.iter().chain(self.property_files.iter().map(|(name, file)| (name, &file.secret)))
    }
}

impl HttpSettings {
    /// The bearer tokens, each of which is good; none where users' data is for this machine alone.
    pub fn tokens(&self) -> impl Iterator<Item = &Secret> {
        self.token.iter().chain(self.token_file.iter().flat_map(|file| &file.tokens))
    }
}
