//! Certificate authorities to trust, read and checked once: what takes them later cannot fail on them.

use std::path::{Path, PathBuf};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::files::read_or_say;

/// The largest file of certificate authorities, in bytes: those of a whole system take some 250 kB.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Certificates in PEM: at least one, and each can be trusted; and the file that they are from.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities {
    pub(crate) pem: Vec<u8>,
    file: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAuthorities {
    #[error("{0}")]
    NoFile(String),
    #[error("has no certificate in it (PEM: -----BEGIN CERTIFICATE-----)")]
    Empty,
    #[error("has a certificate that cannot be read: {0}")]
    Unreadable(String),
}

impl Authorities {
    pub fn read(file: &Path) -> Result<Self, NoAuthorities> {
        Self::check(read(file)?, file)
    }

    fn check(pem: Vec<u8>, file: &Path) -> Result<Self, NoAuthorities> {
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| NoAuthorities::Unreadable(error.to_string()))?;
            store.add(certificate).map_err(|error| NoAuthorities::Unreadable(error.to_string()))?;
        }
        if store.is_empty() { Err(NoAuthorities::Empty) } else { Ok(Self { pem, file: file.to_owned() }) }
    }

    /// What the file has now, if it has changed. While it holds no authorities, those from before stay in force.
    #[must_use]
    pub fn replaced(&self) -> Option<Self> {
        let found = match read(&self.file) {
            Ok(pem) if pem == self.pem => return None,
            found => found.and_then(|pem| Self::check(pem, &self.file)),
        };
        let name = self.file.display();
        match found {
            Ok(new) => {
                tracing::info!("{name} was replaced: new connections trust its certificate authorities");
                Some(new)
            }
            Err(error) => {
                tracing::warn!("{name} {error}: the certificate authorities from before stay in force");
                None
            }
        }
    }
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorities({} bytes)", self.pem.len())
    }
}

fn read(file: &Path) -> Result<Vec<u8>, NoAuthorities> {
    read_or_say(file, MAX_BYTES).map_err(NoAuthorities::NoFile)
}
