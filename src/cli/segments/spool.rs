//! Objects on their way: written to temporary files, because their names and the manifest want their checksums.

use std::io::{BufWriter, Write};

use anyhow::Context;
use sha2::Digest;
use tempfile::NamedTempFile;
use weir_core::segment::{ManifestSegment, Members, ObjectKey, Sha256, format::write_members};

use crate::cli::exit::UsageError;

/// How many bytes of the checksum an object's name carries.
const NAME_HASH_BYTES: usize = 8;
/// How much of a segment's name or version a file's carries, in letters.
const NAME_LETTERS: usize = 64;

pub(super) struct Spooled {
    pub(super) entry: ManifestSegment,
    pub(super) file: NamedTempFile,
}

/// Writes an object. Its name carries its checksum: no other content ever has it, and no object that a reader may be
/// reading is replaced by another.
pub(super) fn spool(name: &str, members: &Members) -> anyhow::Result<Spooled> {
    let file = NamedTempFile::new().context("cannot make a temporary file; check TMPDIR")?;
    let mut writer = Hashing { inner: BufWriter::new(file), hasher: sha2::Sha256::new(), bytes: 0 };
    write_members(members, &mut writer).context("cannot write a temporary file; check the space in TMPDIR")?;
    let file =
        writer.inner.into_inner().map_err(|error| error.into_error()).context("cannot write a temporary file")?;
    let sha256 = Sha256(writer.hasher.finalize().into());
    let object = format!("{}-{}.roaring", file_name(name), hex::encode(&sha256.0[..NAME_HASH_BYTES]));
    let object = ObjectKey::parse(&object).map_err(|problem| UsageError(format!("segment `{name}`: {problem}")))?;
    let entry =
        ManifestSegment { name: name.to_owned(), object, bytes: writer.bytes, sha256, cardinality: members.len() };
    Ok(Spooled { entry, file })
}

/// A name as part of a file's: what a file system or URL may trip over becomes `_`.
pub(super) fn file_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    name.chars().take(NAME_LETTERS).map(plain).collect()
}

struct Hashing<W> {
    inner: W,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
