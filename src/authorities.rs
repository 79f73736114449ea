//! Certificate authorities to trust, read and checked once: what takes them later cannot fail on them.

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Certificates in PEM: at least one, and each can be trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities(Vec<u8>);

/// Why a text holds no authorities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAuthorities {
    /// No certificate in it.
    #[error("has no certificate in it (PEM: -----BEGIN CERTIFICATE-----)")]
    Empty,
    /// One that cannot be read.
    #[error("has a certificate that cannot be read: {0}")]
    Unreadable(String),
}

impl Authorities {
    /// Reads certificates.
    ///
    /// # Errors
    /// There is none, or one cannot be trusted.
    pub fn parse(pem: Vec<u8>) -> Result<Self, NoAuthorities> {
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| NoAuthorities::Unreadable(error.to_string()))?;
            store.add(certificate).map_err(|error| NoAuthorities::Unreadable(error.to_string()))?;
        }
        if store.is_empty() { Err(NoAuthorities::Empty) } else { Ok(Self(pem)) }
    }

    /// The certificates in PEM.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorities({} bytes)", self.0.len())
    }
}
