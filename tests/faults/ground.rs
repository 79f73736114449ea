//! The servers that cases break. They start when first asked for, and stay while cases leave no
//! traces.

use std::path::Path;

use anyhow::Result;
use testkit::{kafka::Kafka, redis::RedisCluster};

#[derive(Debug, Default)]
pub struct Ground {
    one: Option<Kafka>,
    three: Option<Kafka>,
    cluster: Option<RedisCluster>,
}

impl Ground {
    /// One broker with a tap. Ends the three: the machine is small.
    pub fn kafka(&mut self) -> Result<&mut Kafka> {
        self.three = None;
        let kafka = self.one.take().map_or_else(|| Kafka::start_tapped(1), Ok)?;
        Ok(self.one.insert(kafka))
    }

    /// Three brokers; everything is on all of them, and two must have it.
    pub fn brokers(&mut self) -> Result<&mut Kafka> {
        self.one = None;
        let kafka = self.three.take().map_or_else(|| Kafka::start(3), Ok)?;
        Ok(self.three.insert(kafka))
    }

    /// Three primaries with a replica each; whole when a case begins.
    pub fn cluster(&mut self) -> Result<&mut RedisCluster> {
        let cluster = self.cluster.take().map_or_else(|| RedisCluster::start(3, 1), Ok)?;
        let cluster = self.cluster.insert(cluster);
        cluster.wait_whole()?;
        Ok(cluster)
    }

    pub fn keep_logs(&self, folder: &Path) {
        for file in [&self.one, &self.three].into_iter().flatten().flat_map(Kafka::log_files) {
            let name = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let kept =
                std::fs::create_dir_all(folder).and_then(|()| std::fs::copy(&file, folder.join(format!("{name}.log"))));
            if let Err(error) = kept {
                eprintln!("{} is not kept: {error}", file.display());
            }
        }
    }
}
