//! Polls the files of Kafka's secrets and certificates, and has all clients replaced when a file was replaced.
//!
//! librdkafka reads these files when a client is created, and never again. The clients are replaced only after Kafka has answered a client
//! that was created from the new files: a wrong password, half a file, or a key whose certificate is not there yet changes nothing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};
use weir_kafka::{client::KafkaOptions, property_files::PropertyFiles, topics};

use crate::{
    cli::assemble,
    config::{KafkaSettings, Secret, SecretFile},
    files::read_or_say,
};

/// Properties that name a file, which librdkafka reads when a client is created.
const FILE_PROPERTIES: [&str; 6] = [
    "https.ca.location",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
];
/// The largest such file, in bytes: the authorities of a whole system take 250 kB.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// The longest pause before clients are replaced, in polling intervals. Each replacement is a rebalance of the group, and a volume changes
/// on all instances at once. Files that are replaced one after another are all there after the pause, as a rule.
const MAX_JITTER: u32 = 3;

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// The value of the property.
    Value(Secret),
    /// The SHA-256 of a file that librdkafka reads itself.
    Digest([u8; 32]),
}

/// By property.
type Contents = BTreeMap<String, Content>;

/// The files, and the contents that clients are created from.
pub(super) struct KafkaFiles {
    /// Files with a property's value.
    values: BTreeMap<String, SecretFile>,
    /// Files that librdkafka reads.
    paths: BTreeMap<String, PathBuf>,
    in_force: Contents,
    /// Polling interval.
    refresh: Duration,
}

/// Why the clients are not replaced.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct Rejection {
    reason: String,
    /// What Kafka does not answer to; `None` where a file cannot be read.
    refused: Option<Contents>,
}

impl Rejection {
    fn unreadable(reason: String) -> Self {
        Self { reason, refused: None }
    }

    /// Whether it is the same as an earlier one. Where Kafka does not answer the reason does not count: librdkafka words one in several ways.
    fn repeats(&self, earlier: &Self) -> bool {
        self.refused == earlier.refused && (self.refused.is_some() || self.reason == earlier.reason)
    }
}

impl KafkaFiles {
    /// The files of these settings. Call it before the first client is created: a file that changes later is then a change.
    pub(super) fn of(settings: &KafkaSettings) -> Self {
        let path = |name: &&str| {
            let path = PathBuf::from(settings.properties.get(*name)?.expose());
            // OpenSSL reads a folder of authorities for each connection, and `probe` is a word of librdkafka's.
            (!path.is_dir() && path != Path::new("probe")).then(|| ((*name).to_owned(), path))
        };
        let values = settings.property_files.clone();
        let value = |(name, file): (&String, &SecretFile)| (name.clone(), Content::Value(file.secret.clone()));
        let mut in_force: Contents = values.iter().map(value).collect();
        let paths: BTreeMap<String, PathBuf> = FILE_PROPERTIES.iter().filter_map(path).collect();
        // One that cannot be read ends the start, as far as a client needs it.
        let digests = paths.iter().filter_map(|(name, path)| Some((name.clone(), digest(name, path).ok()?)));
        in_force.extend(digests);
        Self { values, paths, in_force, refresh: settings.refresh }
    }

    /// Polls the files, and has clients replaced when files were replaced.
    pub(super) async fn keep_up(mut self, kafka: Arc<KafkaOptions>) {
        if self.values.is_empty() && self.paths.is_empty() {
            return;
        }
        let mut earlier: Option<Rejection> = None;
        loop {
            tokio::time::sleep(self.refresh).await;
            match self.poll(&kafka, self.refresh * MAX_JITTER).await {
                Ok(changed) => {
                    earlier = None;
                    if !changed.is_empty() {
                        let properties = changed.join(", ");
                        tracing::info!(%properties, "files were replaced: weir replaces its Kafka clients");
                    }
                }
                Err(rejection) => {
                    if !earlier.is_some_and(|earlier| rejection.repeats(&earlier)) {
                        let every = self.refresh;
                        tracing::warn!("{rejection}. weir keeps its Kafka clients, and tries again every {every:?}");
                    }
                    earlier = Some(rejection);
                }
            }
        }
    }

    /// Polls once; returns the properties whose files are newly in force. `max_jitter` is the longest pause between Kafka's answer and the
    /// replacement.
    async fn poll(&mut self, kafka: &Arc<KafkaOptions>, max_jitter: Duration) -> Result<Vec<String>, Rejection> {
        let contents = self.read().await?;
        let changed = self.changed(&contents);
        if changed.is_empty() {
            return Ok(changed);
        }
        let files = Arc::new(PropertyFiles::with(values(&contents)));
        let replaced = Arc::new(KafkaOptions { files, ..kafka.as_ref().clone() });
        if let Err(error) = assemble::ask_kafka(&replaced, topics::look).await {
            let changed = changed.join(", ");
            let reason = format!("Kafka does not answer a client with the replaced files ({changed}): {error:#}");
            return Err(Rejection { reason, refused: Some(contents) });
        }
        tokio::time::sleep(max_jitter.mul_f64(fastrand::f64())).await;
        if self.read().await? != contents {
            // Replaced again: the next poll asks Kafka with those.
            return Ok(Vec::new());
        }
        kafka.files.replace(values(&contents));
        self.in_force = contents;
        Ok(changed)
    }

    /// The properties whose files have other contents than those in force.
    fn changed(&self, contents: &Contents) -> Vec<String> {
        let differs = |(name, content): &(&String, &Content)| self.in_force.get(*name) != Some(*content);
        contents.iter().filter(differs).map(|(name, _)| name.clone()).collect()
    }

    /// Reads all files. It follows links: a mounted volume is replaced by another link.
    async fn read(&self) -> Result<Contents, Rejection> {
        let (values, paths) = (self.values.clone(), self.paths.clone());
        let read = move || {
            let value = |(name, file): (&String, &SecretFile)| {
                let secret = file.read().map_err(|reason| format!("kafka.property_files.{name} {reason}"))?;
                Ok((name.clone(), Content::Value(secret)))
            };
            let digests = paths.iter().map(|(name, path)| Ok((name.clone(), digest(name, path)?)));
            values.iter().map(value).chain(digests).collect::<Result<Contents, String>>()
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| Rejection::unreadable(error.to_string()))?;
        read.map_err(Rejection::unreadable)
    }
}

fn values(contents: &Contents) -> BTreeMap<String, String> {
    let value = |(name, content): (&String, &Content)| match content {
        Content::Value(secret) => Some((name.clone(), secret.expose().to_owned())),
        Content::Digest(_) => None,
    };
    contents.iter().filter_map(value).collect()
}

fn digest(name: &str, path: &Path) -> Result<Content, String> {
    let bytes = read_or_say(path, MAX_BYTES)
        .map_err(|problem| format!("kafka.properties.{name} names {}, which {problem}", path.display()))?;
    Ok(Content::Digest(Sha256::digest(bytes).into()))
}

#[cfg(test)]
mod tests;
