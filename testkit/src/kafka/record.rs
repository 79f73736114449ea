//! What is published and what is read: plain values.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// In order; names may repeat, and a value may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// `None`: the one that the key hashes to (murmur2), any for a null key.
    pub partition: Option<i32>,
    /// Milliseconds since 1970; `None`: now.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    pub fn keyless(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    pub fn tombstone(key: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), ..Self::default() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), Some(value.as_ref().to_vec())));
        self
    }

    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumed {
    pub partition: i32,
    pub offset: i64,
    /// `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// `None` is a null value.
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

impl Consumed {
    /// The last header of this name as text; `None` if there is none, it is null, or it is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(known, _)| known == name)?;
        std::str::from_utf8(value.as_deref()?).ok()
    }

    /// The key as text, empty for a null key; what is not UTF-8 is replaced.
    pub fn key_text(&self) -> String {
        String::from_utf8_lossy(self.key.as_deref().unwrap_or_default()).into_owned()
    }

    /// The value as text, empty for a null value; what is not UTF-8 is replaced.
    pub fn value_text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }
}
