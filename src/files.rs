//! Documents that are files: policies, configuration.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use weir_core::document::MAX_DOCUMENT_BYTES;

/// Reads a document's text.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is larger than [`MAX_DOCUMENT_BYTES`].
pub fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_DOCUMENT_BYTES {
        let reason = format!("it is larger than {MAX_DOCUMENT_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}
