//! Documents that are files: policies, configuration.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use weir_core::basis::document::MAX_DOCUMENT_BYTES;

/// A file of at most so many bytes; an error of the kind [`io::ErrorKind::FileTooLarge`] where it is larger.
fn read_bytes(path: &Path, most_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most_bytes} bytes")));
    }
    Ok(bytes)
}

/// Reads a file of at most so many bytes. The error goes on after its name: "cannot be read: ...".
pub fn read_or_say(path: &Path, most_bytes: usize) -> Result<Vec<u8>, String> {
    read_bytes(path, most_bytes).map_err(|error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            return format!("is larger than {most_bytes} bytes");
        }
        format!("cannot be read: {error}")
    })
}

/// Reads a text of at most so many bytes; an error of the kind [`io::ErrorKind::FileTooLarge`] where it is larger.
pub fn read_text(path: &Path, most_bytes: usize) -> io::Result<String> {
    String::from_utf8(read_bytes(path, most_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// Reads a document's text, of at most [`MAX_DOCUMENT_BYTES`].
pub fn read_file(path: &Path) -> io::Result<String> {
    read_text(path, MAX_DOCUMENT_BYTES)
}
