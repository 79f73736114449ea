//! What a Redis may answer to a script. Rows 16 and 17.

use anyhow::Result;

use crate::{
    ground::Ground,
    support::{POLICY, Scene, http::metric},
    trial::{Findings, Order, PARTITIONS, Trial},
};

pub fn flushed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let redis = ground.cluster()?.nodes();
    let kafka = ground.kafka()?.client().clone();
    let scene = Scene::on(kafka.clone(), redis, "script-flush", PARTITIONS, POLICY);
    let mut trial = Trial::new(order, &kafka, scene);
    trial.load(0)?;
    let worker = trial.start("flushed", &[]);
    trial.ready(worker)?;
    trial.decided(500)?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        for node in cluster.primaries()? {
            cluster.node(node).query::<()>(&["SCRIPT", "FLUSH"])?;
        }
        let mark = trial.over()?;
        trial.back(&mark)?;
    }
    let loaded = metric(trial.worker(worker), "weir_redis_retries_total", "no_script").unwrap_or(0.0);
    anyhow::ensure!(loaded > 0.0, "no script was missed: nothing was tried");
    trial.finish(order.times)
}
