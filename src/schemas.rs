//! The schemas of intents: those in files, and the HTTP client of a Schema Registry.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::{
    Request, Uri,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::current::Current,
    intent::{dead_letter::DeadLetter, fields::FieldMap},
    ports::{Content, Preparing, SchemaId, Schemas},
};
use weir_schemas::{FileError, Format, Getting, HttpAnswer, IntentSchemas, Registry, RegistryClient};

use crate::{
    authorities::Authorities,
    config::{SchemasSettings, Secret, SecretFile},
    files::read_text,
};

/// The largest schema that is read, in bytes, from a file or a registry.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// The largest answer of a registry, in bytes: a schema with its escapes, and what it refers to.
const MAX_ANSWER_BYTES: usize = 2 * MAX_SCHEMA_BYTES;
/// How long a command waits until it asks a registry again.
const PAUSE: Duration = Duration::from_secs(1);
const ACCEPTED: &str = "application/vnd.schemaregistry.v1+json, application/json";

/// What reads intents in this format. The error names each file that cannot be used.
pub fn schemas(format: Format, map: &FieldMap, settings: &SchemasSettings) -> anyhow::Result<IntentSchemas> {
    let registry = registry(settings)?.map(|registry| (registry, settings.cache));
    let (mut texts, mut wrong) = (Vec::new(), BTreeMap::new());
    for (id, path) in &settings.files {
        match schema_text(path) {
            Ok(text) => texts.push((*id, text)),
            Err(error) => drop(wrong.insert(*id, format!("cannot be read: {error:#}"))),
        }
    }
    let schemas = IntentSchemas::new(format, map, texts, registry);
    let schemas =
        schemas.map_err(|unusable| wrong.extend(unusable.into_iter().map(|FileError { id, problem }| (id, problem))));
    match schemas {
        Ok(schemas) if wrong.is_empty() => Ok(schemas),
        Ok(_) | Err(()) => {
            let named = |(id, problem): (&u32, &String)| {
                let path = settings.files.get(id).map(|path| path.display().to_string()).unwrap_or_default();
                format!("schemas.files.{id}: {path} {problem}")
            };
            anyhow::bail!(wrong.iter().map(named).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// The registry, where one is set.
pub fn registry(settings: &SchemasSettings) -> anyhow::Result<Option<Registry>> {
    let client = settings.registry.as_deref().map(|url| HttpRegistry::new(url, settings)).transpose()?;
    Ok(client.map(Registry::new))
}

fn schema_text(path: &Path) -> anyhow::Result<String> {
    read_text(path, MAX_SCHEMA_BYTES).map_err(|error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            return anyhow::anyhow!("it has more than {MAX_SCHEMA_BYTES} bytes");
        }
        error.into()
    })
}

/// The same map for a command that reads one record after the other, on a thread that may block.
pub fn when_needed(map: &Arc<FieldMap>, stop: &CancellationToken) -> Arc<FieldMap> {
    let Some(schemas) = map.schemas() else { return Arc::clone(map) };
    let (schemas, runtime, stop) = (Arc::clone(schemas), Handle::current(), stop.clone());
    Arc::new(map.as_json().framed(Arc::new(WhenNeeded { schemas, runtime, stop })))
}

/// Makes a schema ready where a value is read that needs it. Waits for the registry until it is stopped.
#[derive(Debug)]
struct WhenNeeded {
    schemas: Arc<dyn Schemas>,
    runtime: Handle,
    stop: CancellationToken,
}

impl Schemas for WhenNeeded {
    fn needs(&self, _: &[u8]) -> Option<SchemaId> {
        None
    }

    fn prepare<'s>(&'s self, ids: &'s BTreeSet<SchemaId>) -> Preparing<'s> {
        self.schemas.prepare(ids)
    }

    fn read<'a>(&self, value: &'a [u8]) -> Result<Content<'a>, DeadLetter> {
        let ids: BTreeSet<SchemaId> = self.schemas.needs(value).into_iter().collect();
        let held = self.runtime.block_on(self.stop.run_until_cancelled(async {
            loop {
                match self.schemas.prepare(&ids).await {
                    Ok(held) => return held,
                    Err(error) => tracing::warn!("{error}; asking again"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        }));
        let read = self.schemas.read(value);
        drop(held);
        read
    }
}

/// Asks a registry over HTTP.
#[derive(Debug)]
struct HttpRegistry {
    /// Its URL, without a slash at the end.
    url: String,
    credentials: Option<(String, Password)>,
    timeout: Duration,
    connected: Arc<Current<Connected>>,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// A client, and whom it trusts instead of the system's authorities.
#[derive(Debug)]
struct Connected {
    client: HttpClient,
    authorities: Option<Authorities>,
}

impl Connected {
    fn new(url: &str, authorities: Option<Authorities>) -> anyhow::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build(connector(url, authorities.as_ref())?);
        Ok(Self { client, authorities })
    }
}

#[derive(Debug)]
enum Password {
    Given(Secret),
    File(SecretFile),
}

impl HttpRegistry {
    fn new(url: &str, settings: &SchemasSettings) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        url.parse::<Uri>().with_context(|| format!("schemas.registry: {url:?} is not a URL"))?;
        let SchemasSettings { username, password, password_file, ca_file, timeout, .. } = settings;
        let given = password.clone().map(Password::Given);
        let password = given.or_else(|| password_file.clone().map(Password::File));
        let connected = Current::new(Arc::new(Connected::new(&url, ca_file.clone())?));
        Ok(Self { url, credentials: username.clone().zip(password), timeout: *timeout, connected })
    }

    /// A client that trusts what is in the file of authorities now.
    fn client(&self) -> anyhow::Result<HttpClient> {
        if let Some(new) = self.connected.get().authorities.as_ref().and_then(Authorities::replaced) {
            self.connected.replace(Arc::new(Connected::new(&self.url, Some(new))?));
        }
        Ok(self.connected.get().client.clone())
    }

    async fn ask(&self, path: &str) -> anyhow::Result<HttpAnswer> {
        let request = Request::get(format!("{}{path}", self.url))
            .header(ACCEPT, ACCEPTED)
            .header(USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")));
        let request = match self.authorization()? {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        };
        let response = self.client()?.request(request.body(Empty::new())?).await?;
        let status = response.status().as_u16();
        match Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok(HttpAnswer { status, body: Some(body.to_bytes().to_vec()) }),
            Err(error) if error.is::<LengthLimitError>() => Ok(HttpAnswer { status, body: None }),
            Err(error) => Err(anyhow::anyhow!(error).context("its answer cannot be read")),
        }
    }

    fn authorization(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Some((user, password)) = &self.credentials else { return Ok(None) };
        let password = match password {
            Password::Given(secret) => secret.clone(),
            Password::File(file) => file.read().map_err(|error| anyhow::anyhow!("schemas.password_file {error}"))?,
        };
        let encoded = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
        let mut value = HeaderValue::from_str(&format!("Basic {encoded}"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl RegistryClient for HttpRegistry {
    fn get<'s>(&'s self, path: &'s str) -> Getting<'s> {
        Box::pin(async move {
            match tokio::time::timeout(self.timeout, self.ask(path)).await {
                Ok(answer) => answer.map_err(|error| with_advice(&format!("{error:#}"))),
                Err(_) => Err(format!("it did not answer within {:?}", self.timeout)),
            }
        })
    }
}

/// What to look at where an error is about TLS.
fn with_advice(error: &str) -> String {
    let is_about_tls = ["certificate", "TLS", "InvalidContentType"].iter().any(|word| error.contains(word));
    let advice = if is_about_tls { "; check schemas.registry and schemas.ca_file" } else { "" };
    format!("{error}{advice}")
}

/// Connects over TLS where the URL asks for it; with authorities of one's own, no other is trusted.
fn connector(url: &str, authorities: Option<&Authorities>) -> anyhow::Result<HttpsConnector<HttpConnector>> {
    let builder = HttpsConnectorBuilder::new();
    let provider = aws_lc_rs::default_provider();
    let builder = match authorities {
        None if url.starts_with("https://") => builder
            .with_provider_and_native_roots(provider)
            .context("schemas.registry is https, and the system's certificate authorities cannot be read")?,
        None => builder.with_tls_config(trusting(RootCertStore::empty())?),
        Some(authorities) => builder.with_tls_config(trusting(authorities.store().map_err(anyhow::Error::msg)?)?),
    };
    Ok(builder.https_or_http().enable_http1().build())
}

fn trusting(store: RootCertStore) -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(store).with_no_client_auth())
}
