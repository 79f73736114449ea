//! A bucket known by its address: puts and gets objects.

use std::{future::Future, time::Duration};

use anyhow::{Context, Result, anyhow};
use aws_sdk_s3::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region},
    error::DisplayErrorContext,
    primitives::ByteStream,
};

/// The access key that every S3 of the tests knows.
pub const ACCESS_KEY: &str = "weir-test";
/// Its secret.
pub const SECRET_KEY: &str = "weir-test-secret";
/// The region requests are signed for.
pub const REGION: &str = "us-east-1";

const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// A bucket of an S3 that knows [`ACCESS_KEY`]. Calls block, also inside an async test.
#[derive(Debug, Clone)]
pub struct Bucket {
    endpoint: String,
    name: String,
    client: Client,
}

impl Bucket {
    /// A bucket at an endpoint (`http://127.0.0.1:9000`). Does not connect.
    pub fn new(endpoint: &str, name: &str) -> Self {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(endpoint)
            .region(Region::new(REGION))
            .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "testkit"))
            .force_path_style(true)
            .build();
        Self { endpoint: endpoint.to_owned(), name: name.to_owned(), client: Client::from_conf(config) }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// What a process needs in its environment to be let in.
    pub fn env(&self) -> [(&'static str, &'static str); 3] {
        [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", REGION)]
    }

    /// The `[s3]` section of a weir configuration.
    pub fn config(&self) -> String {
        let endpoint = &self.endpoint;
        format!("[s3]\nendpoint = \"{endpoint}\"\nregion = \"{REGION}\"\nforce_path_style = true\n")
    }

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        let body = ByteStream::from(bytes.into());
        let request = self.client.put_object().bucket(&self.name).key(key).body(body);
        block_on(async { request.send().await.map(|_| ()).map_err(|error| self.explain("PUT", key, error)) })
    }

    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        let request = self.client.get_object().bucket(&self.name).key(key);
        block_on(async {
            let object = request.send().await.map_err(|error| self.explain("GET", key, error))?;
            Ok(object.body.collect().await.with_context(|| format!("GET {}", self.url(key)))?.to_vec())
        })
    }

    pub fn delete(&self, key: &str) -> Result<()> {
        let request = self.client.delete_object().bucket(&self.name).key(key);
        block_on(async { request.send().await.map(|_| ()).map_err(|error| self.explain("DELETE", key, error)) })
    }

    fn explain(&self, verb: &str, key: &str, error: impl std::error::Error) -> anyhow::Error {
        anyhow!("{verb} {}: {}", self.url(key), DisplayErrorContext(error))
    }
}

/// Runs a future on a thread of its own, so that async tests may call it as well.
fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let bounded = async {
        let answer = tokio::time::timeout(REQUEST_DEADLINE, future).await;
        answer.with_context(|| format!("the S3 does not answer within {REQUEST_DEADLINE:?}"))?
    };
    std::thread::scope(|scope| {
        let thread =
            scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(bounded));
        thread.join().map_err(|_| anyhow!("the thread of an S3 request panicked"))?
    })
}
