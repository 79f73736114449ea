//! The HTTP client of the exporter. The SDK sends from a thread of its own, and hyper needs tokio's runtime.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, hyper::HyperClient};
use tokio::runtime::Handle;

/// Timeout of a request: the default of the SDK.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client whose requests run on the runtime that it was made on.
#[derive(Debug)]
pub(super) struct OnRuntime {
    runtime: Handle,
    client: Arc<dyn HttpClient>,
}

impl OnRuntime {
    /// A client for this URL. With TLS it trusts the system's authorities.
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        let client: Arc<dyn HttpClient> = if url.starts_with("https://") {
            let roots = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())
                .context("tracing.endpoint is https, and the system's certificate authorities cannot be read")?;
            Arc::new(HyperClient::new(roots.https_only().enable_http1().build(), TIMEOUT, None))
        } else {
            Arc::new(HyperClient::with_default_connector(TIMEOUT, None))
        };
        Ok(Self { runtime: Handle::current(), client })
    }
}

#[async_trait::async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = Arc::clone(&self.client);
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}
