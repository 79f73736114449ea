//! The server.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    access::Rights,
    bucket::{ACCESS_KEY, Bucket, SECRET_KEY},
    faults::{Faults, FaultyService},
};
use crate::{background::Background, ports::Port, scratch::Scratch, tls::Authority};

const BUCKET: &str = "weir";

/// A guest with an access key and rights of their own.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'g> {
    pub access_key: &'g str,
    pub secret_key: &'g str,
    /// An IAM policy document.
    pub policy: &'g str,
}

/// A running S3 with one bucket. Ends when dropped.
#[derive(Debug)]
pub struct S3 {
    secured: Option<String>,
    bucket: Bucket,
    pub(super) faults: Arc<Faults>,
    _servers: Vec<Background>,
    _scratch: Scratch,
}

impl S3 {
    pub fn start() -> Result<Self> {
        Self::start_at(0, None, &[])
    }

    /// Starts an S3 that also has an https endpoint ([`S3::secured_endpoint`]), with a certificate that the authority
    /// vouches for, and guests with the rights of their policies.
    pub fn start_secured(authority: &Authority, guests: &[Guest<'_>]) -> Result<Self> {
        Self::start_at(0, Some(authority.server("s3")?.acceptor()?), guests)
    }

    pub fn start_on(port: &Port) -> Result<Self> {
        Self::start_at(port.number(), None, &[])
    }

    fn start_at(port: u16, tls: Option<TlsAcceptor>, guests: &[Guest<'_>]) -> Result<Self> {
        let scratch = Scratch::new("s3")?;
        let root = scratch.join("root");
        // A bucket is a folder.
        std::fs::create_dir_all(root.join(BUCKET))?;
        let files = FileSystem::new(&root).map_err(|error| anyhow!("cannot serve {}: {error:?}", root.display()))?;
        let mut service = S3ServiceBuilder::new(files);
        let mut known = SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY);
        let mut rights = Rights::default();
        for guest in guests {
            known.register(guest.access_key.to_owned(), guest.secret_key.into());
            rights.allow(guest.access_key, guest.policy)?;
        }
        service.set_auth(known);
        service.set_access(rights);
        let faults = Arc::new(Faults::default());
        let service = FaultyService::new(service.build(), Arc::clone(&faults));

        let plain = service.clone();
        let mut servers = vec![Background::start("s3", port, move |socket| serve(socket, plain.clone()))?];
        let bucket = Bucket::new(&format!("http://{}", servers[0].address), BUCKET);
        let mut secured = None;
        if let Some(tls) = tls {
            let server = Background::start("s3-tls", 0, move |socket| serve_tls(socket, tls.clone(), service.clone()))?;
            secured = Some(format!("https://{}", server.address));
            servers.push(server);
        }
        Ok(Self { secured, bucket, faults, _servers: servers, _scratch: scratch })
    }

    pub fn endpoint(&self) -> &str {
        self.bucket.endpoint()
    }

    pub fn secured_endpoint(&self) -> Option<&str> {
        self.secured.as_deref()
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }
}

async fn serve(socket: impl AsyncRead + AsyncWrite + Unpin + 'static, service: FaultyService) {
    // A disconnected client is no error of the server.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
}

async fn serve_tls(socket: TcpStream, tls: TlsAcceptor, service: FaultyService) {
    if let Ok(socket) = tls.accept(socket).await {
        serve(socket, service).await;
    }
}
