//! Signing in to AWS services with IAM: a token of MSK and a password of ElastiCache or MemoryDB are a presigned URL each (Signature
//! Version 4). It is signed here, without a call: only the credentials are fetched, ahead of time.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign},
    sign::v4,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::http::Request;
use tokio::time::timeout;
use weir_kafka::tokens::{Token, Tokens};
use weir_redis::Passwords;

/// How long a signature is good for: as long as these services accept one.
const VALID: Duration = Duration::from_secs(900);
const PACE: Pace =
    Pace { answer: Duration::from_secs(20), least: Duration::from_secs(5), most: Duration::from_secs(600) };

/// How credentials are fetched, and again at half of what is left of them.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// How long they may take: what gives them (a machine's metadata, a process) may hang.
    answer: Duration,
    least: Duration,
    most: Duration,
}

/// The AWS default chain, made anew for each fetch: the SDK reads a profile once, and would give replaced keys for ever.
#[derive(Debug)]
struct DefaultChain {
    region: Region,
}

impl DefaultChain {
    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let config = aws_config::defaults(BehaviorVersion::latest()).region(self.region.clone()).load().await;
        let none = || CredentialsError::not_loaded("the AWS default chain has no credentials");
        config.credentials_provider().ok_or_else(none)?.provide_credentials().await
    }
}

impl ProvideCredentials for DefaultChain {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}

/// Signs with the newest credentials.
pub struct Signer {
    region: String,
    credentials: Arc<ArcSwap<Credentials>>,
}

impl Signer {
    /// One with the credentials that the AWS default chain finds, and fetches again before they end.
    pub async fn connect(region: &str) -> anyhow::Result<Self> {
        let chain = DefaultChain { region: Region::new(region.to_owned()) };
        Self::with(SharedCredentialsProvider::new(chain), region, PACE).await
    }

    async fn with(provider: SharedCredentialsProvider, region: &str, pace: Pace) -> anyhow::Result<Self> {
        let first = pace.fetch(&provider).await.map_err(anyhow::Error::msg)?;
        let credentials = Arc::new(ArcSwap::from_pointee(first));
        tokio::spawn(keep_fresh(Arc::downgrade(&credentials), provider, pace));
        Ok(Self { region: region.to_owned(), credentials })
    }

    /// A URL with the signature in its query, and when the signature ends.
    fn presign(&self, url: &str, service: &str, now: SystemTime) -> Result<(String, SystemTime), String> {
        let credentials = self.credentials.load_full();
        let ends = credentials.expiry().map_or(now + VALID, |expiry| expiry.min(now + VALID));
        if ends <= now {
            return Err("the AWS credentials have ended, and no others were given".to_owned());
        }
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(VALID);
        let identity = Credentials::clone(&credentials).into();
        let parameters = v4::SigningParams::builder().identity(&identity).region(&self.region).name(service).time(now);
        let wrong = |error: &dyn fmt::Display| format!("the request cannot be signed: {error}");
        let parameters = parameters.settings(settings).build().map_err(|error| wrong(&error))?.into();
        let request = SignableRequest::new("GET", url, std::iter::empty(), SignableBody::Bytes(&[]));
        let signed = sign(request.map_err(|error| wrong(&error))?, &parameters).map_err(|error| wrong(&error))?;
        let mut request = Request::get(url).body(()).map_err(|error| wrong(&error))?;
        signed.into_parts().0.apply_to_request_http1x(&mut request);
        Ok((request.uri().to_string(), ends))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer {{ region: {:?} }}", self.region)
    }
}

/// The time that signatures carry and by which credentials end; no intent is decided by it.
#[expect(clippy::disallowed_methods, reason = "AWS's libraries take this type")]
fn now() -> SystemTime {
    SystemTime::now()
}

impl Pace {
    async fn fetch(self, provider: &SharedCredentialsProvider) -> Result<Credentials, String> {
        match timeout(self.answer, provider.provide_credentials()).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(error)) => Err(format!("AWS gave no credentials: {:#}", anyhow::Error::new(error))),
            Err(_) => Err(format!("AWS gave no credentials within {} s", self.answer.as_secs())),
        }
    }

    /// When credentials with this end are fetched again.
    fn pause(self, expiry: Option<SystemTime>, now: SystemTime) -> Duration {
        let left = expiry.map(|expiry| expiry.duration_since(now).unwrap_or_default());
        left.map_or(self.most, |left| left / 2).clamp(self.least, self.most)
    }
}

/// Fetches credentials for as long as they are used. Those before stay in use while none are given.
async fn keep_fresh(kept: Weak<ArcSwap<Credentials>>, provider: SharedCredentialsProvider, pace: Pace) {
    let mut failed = false;
    while let Some(expiry) = kept.upgrade().map(|credentials| credentials.load().expiry()) {
        tokio::time::sleep(pace.pause(expiry, now())).await;
        let fetched = pace.fetch(&provider).await;
        let Some(kept) = kept.upgrade() else { return };
        match fetched {
            Ok(fresh) => {
                kept.store(Arc::new(fresh));
                if failed {
                    tracing::info!("AWS gives credentials again");
                }
                failed = false;
            }
            // In the end it is asked every few seconds.
            Err(reason) if failed => tracing::debug!(%reason, "no new AWS credentials"),
            Err(reason) => {
                tracing::warn!(%reason, "no new AWS credentials: weir asks again, and goes on with those that it has until they end");
                failed = true;
            }
        }
    }
}

/// Tokens for the brokers of an MSK cluster.
#[derive(Debug)]
pub struct MskTokens(pub Signer);

impl MskTokens {
    fn at(&self, now: SystemTime) -> Result<Token, String> {
        let url = format!("https://kafka.{}.amazonaws.com/?Action=kafka-cluster%3AConnect", self.0.region);
        let (url, ends) = self.0.presign(&url, "kafka-cluster", now)?;
        // MSK wants to be told what signs; it is no part of what is signed.
        let url = format!("{url}&User-Agent=weir%2F{}", env!("CARGO_PKG_VERSION"));
        let expires = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Token {
            value: URL_SAFE_NO_PAD.encode(url),
            principal: "weir".to_owned(),
            expires_ms: i64::try_from(expires.as_millis()).unwrap_or(i64::MAX),
        })
    }
}

impl Tokens for MskTokens {
    fn token(&self) -> Result<Token, String> {
        self.at(now())
    }
}

/// The services of AWS that speak Redis' protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwsCache {
    ElastiCache,
    /// A cache of ElastiCache without nodes of one's own.
    ElastiCacheServerless,
    MemoryDb,
}

pub const AWS_CACHES: &[(&str, AwsCache)] = &[
    ("elasticache", AwsCache::ElastiCache),
    ("elasticache_serverless", AwsCache::ElastiCacheServerless),
    ("memorydb", AwsCache::MemoryDb),
];

/// Passwords for the nodes of a cluster of ElastiCache or MemoryDB: one signed for each connection.
pub struct CachePasswords {
    signer: Signer,
    url: String,
    service: &'static str,
}

impl CachePasswords {
    pub fn new(signer: Signer, cache: AwsCache, cluster: &str, user: &str) -> Self {
        let (service, kind) = match cache {
            AwsCache::ElastiCache => ("elasticache", ""),
            AwsCache::ElastiCacheServerless => ("elasticache", "&ResourceType=ServerlessCache"),
            AwsCache::MemoryDb => ("memorydb", ""),
        };
        Self { signer, url: format!("{SCHEME}{cluster}/?Action=connect{kind}&User={user}"), service }
    }

    fn at(&self, now: SystemTime) -> Result<String, String> {
        let (url, _) = self.signer.presign(&self.url, self.service, now)?;
        Ok(url.trim_start_matches(SCHEME).to_owned())
    }
}

/// What a password lacks of a URL.
const SCHEME: &str = "https://";

impl Passwords for CachePasswords {
    fn password(&self) -> Result<String, String> {
        self.at(now())
    }
}

#[cfg(test)]
mod tests;
