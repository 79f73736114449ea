//! Certificate authorities to trust, read and checked once: what takes them later cannot fail on them.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

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

impl Authorities {
    /// Those in a file. The error goes on after its name: "has no certificate in it".
    pub fn read(file: &Path) -> Result<Self, String> {
        Self::check(read_or_say(file, MAX_BYTES)?, file)
    }

    fn check(pem: Vec<u8>, file: &Path) -> Result<Self, String> {
        let authorities = Self { pem, file: file.to_owned() };
        authorities.store()?;
        Ok(authorities)
    }

    /// A store of these certificates and no others.
    pub fn store(&self) -> Result<RootCertStore, String> {
        let unreadable = |error: &dyn Display| format!("has a certificate that cannot be read: {error}");
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.pem) {
            store.add(certificate.map_err(|error| unreadable(&error))?).map_err(|error| unreadable(&error))?;
        }
        if store.is_empty() {
            return Err("has no certificate in it (PEM: -----BEGIN CERTIFICATE-----)".to_owned());
        }
        Ok(store)
    }

    /// What the file has now, if it has changed. While it holds no authorities, those from before stay in force.
    #[must_use]
    pub fn replaced(&self) -> Option<Self> {
        let found = match read_or_say(&self.file, MAX_BYTES) {
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
