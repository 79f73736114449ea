//! Certificates made at run time: an authority, and whom it vouches for.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{
    process::{printed, program},
    scratch::Scratch,
};

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const NAME: &str = "ca.name";

/// A certificate authority, with the files of those that it vouches for in a temporary folder.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca_file: PathBuf,
    scratch: Scratch,
    /// Whom it has vouched for, so that nobody's files are written over while they are read.
    vouched: AtomicU64,
}

/// The files of somebody that an authority vouches for, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Key and certificate in one file.
    pub both: PathBuf,
}

impl Authority {
    /// A new authority that nobody trusts yet.
    pub fn new() -> Result<Self> {
        // Of several authorities OpenSSL takes the first whose name is the issuer's.
        let name = crate::unique("weir test authority");
        let (params, key, scratch) = (params_of(&name)?, KeyPair::generate()?, Scratch::new("tls")?);
        std::fs::write(scratch.join(CERTIFICATE), params.self_signed(&key)?.pem())?;
        std::fs::write(scratch.join(KEY), key.serialize_pem())?;
        std::fs::write(scratch.join(NAME), name)?;
        let (issuer, ca_file) = (Issuer::new(params, key), scratch.join(CERTIFICATE));
        Ok(Self { issuer, ca_file, scratch, vouched: AtomicU64::new(0) })
    }

    /// The authority that another process keeps in this folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let issuer = Issuer::new(params_of(&read(NAME)?)?, KeyPair::from_pem(&read(KEY)?)?);
        let ca_file = folder.join(CERTIFICATE);
        Ok(Self { issuer, ca_file, scratch: Scratch::new("tls")?, vouched: AtomicU64::new(0) })
    }

    /// The folder by which another process opens it.
    pub fn folder(&self) -> &Path {
        self.ca_file.parent().unwrap_or(&self.ca_file)
    }

    pub fn ca_file(&self) -> PathBuf {
        self.ca_file.clone()
    }

    /// A server on this machine: 127.0.0.1 and localhost.
    pub fn server(&self, name: &str) -> Result<Identity> {
        let hosts = ["127.0.0.1", "localhost"].map(str::to_owned);
        // Redis uses its certificate as a client, too.
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.vouch(name, CertificateParams::new(hosts)?, &usages)
    }

    /// A client whose common name is `name`.
    pub fn client(&self, name: &str) -> Result<Identity> {
        self.vouch(name, CertificateParams::new(Vec::new())?, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn vouch(&self, name: &str, mut params: CertificateParams, usages: &[ExtendedKeyUsagePurpose]) -> Result<Identity> {
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let number = self.vouched.fetch_add(1, Ordering::Relaxed);
        let write = |ending: &str, text: &str| {
            let path = self.scratch.join(&format!("{name}-{number}.{ending}"));
            std::fs::write(&path, text).map(|()| path)
        };
        let both = write("pem", &format!("{key}{certificate}"))?;
        Ok(Identity { certificate: write("crt", &certificate)?, key: write("key", &key)?, both })
    }
}

impl Identity {
    /// What makes it a server of TLS.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let certificates = CertificateDer::pem_file_iter(&self.certificate)?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// The key once more, encrypted with a passphrase.
    pub fn encrypted_key(&self, passphrase: &str) -> Result<PathBuf> {
        let encrypted = self.key.with_extension("encrypted.key");
        let mut openssl = Command::new(program("openssl")?);
        openssl
            .args(["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-passout", "env:PASSPHRASE"])
            .env("PASSPHRASE", passphrase);
        printed(openssl.arg("-in").arg(&self.key).arg("-out").arg(&encrypted))?;
        Ok(encrypted)
    }
}

fn params_of(authority: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = named(authority);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut found = DistinguishedName::new();
    found.push(DnType::CommonName, name);
    found
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
