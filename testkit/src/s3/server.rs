//! The server.

use std::{sync::Arc, thread::JoinHandle};

use anyhow::{Context, Result, anyhow};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::{net::TcpListener, sync::oneshot};
use tokio_rustls::TlsAcceptor;

use super::{
    access::Rights,
    bucket::{ACCESS_KEY, Bucket, SECRET_KEY},
    faults::{Counts, Fault, Faults, FaultyService},
};
use crate::{ports::Port, scratch::Scratch, tls::Authority};

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
    faults: Arc<Faults>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _scratch: Scratch,
}

impl S3 {
    pub fn start() -> Result<Self> {
        Self::start_at("127.0.0.1:0", None, &[])
    }

    /// Starts an S3 that also has an https endpoint ([`S3::secured_endpoint`]), with a certificate that the authority
    /// vouches for, and guests with the rights of their policies.
    pub fn start_secured(authority: &Authority, guests: &[Guest<'_>]) -> Result<Self> {
        Self::start_at("127.0.0.1:0", Some(authority.server("s3")?.acceptor()?), guests)
    }

    pub fn start_on(port: &Port) -> Result<Self> {
        Self::start_at(&format!("127.0.0.1:{}", port.number()), None, &[])
    }

    fn start_at(address: &str, tls: Option<TlsAcceptor>, guests: &[Guest<'_>]) -> Result<Self> {
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

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(address));
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let secured =
            tls.map(|tls| anyhow::Ok((tls, runtime.block_on(TcpListener::bind("127.0.0.1:0"))?))).transpose()?;
        let secured_endpoint = match &secured {
            Some((_, listener)) => Some(format!("https://{}", listener.local_addr()?)),
            None => None,
        };
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("s3".to_owned()).spawn(move || {
            runtime.block_on(async {
                if let Some((tls, listener)) = secured {
                    tokio::spawn(serve_tls(listener, tls, service.clone()));
                }
                tokio::select! { () = serve(listener, service) => {}, _ = ended => {} }
            });
        })?;
        let bucket = Bucket::new(&endpoint, BUCKET);
        Ok(Self { secured: secured_endpoint, bucket, faults, end: Some(end), thread: Some(thread), _scratch: scratch })
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

    /// Lets the next `requests` GET and HEAD requests for objects fail this way; replaces what was left of the last
    /// fault.
    pub fn fail_next(&self, requests: u32, fault: Fault) {
        self.faults.set(requests, fault);
    }

    /// Lets PUT and POST requests for objects fail this way after so many good ones; `None` heals.
    pub fn fail_writes_after(&self, good: u32, fault: Option<Fault>) {
        self.faults.set_writes(good, fault);
    }

    /// Denies access to objects, from now on, to those that do not say that they pay for it.
    pub fn charge_requesters(&self) {
        self.faults.charge();
    }

    /// What was written or deleted so far, in order: `PUT key`.
    pub fn writes(&self) -> Vec<String> {
        self.faults.writes()
    }

    pub fn counts(&self) -> Counts {
        self.faults.counts()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, service: FaultyService) {
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            // A disconnected client is no error of the server.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn serve_tls(listener: TcpListener, tls: TlsAcceptor, service: FaultyService) {
    while let Ok((socket, _)) = listener.accept().await {
        let (tls, service) = (tls.clone(), service.clone());
        tokio::spawn(async move {
            let Ok(socket) = tls.accept(socket).await else { return };
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
