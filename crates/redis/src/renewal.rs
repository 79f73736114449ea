//! Finds the keyspace with which a rebuild has replaced a lost one.

use std::sync::Arc;

use super::{
    cluster::Cluster,
    keyspace::{Keyspace, State},
    open::{compare, read_meta},
};

/// The keyspace under this one's name, where it is another one that is ready and of the same shape.
pub(super) async fn renewed(cluster: &mut Cluster, ours: &Arc<Keyspace>) -> Option<Arc<Keyspace>> {
    let (meta, state) = read_meta(cluster, ours).await.ok()??;
    let ready = state == State::Ready && meta.epoch != ours.epoch();
    if !ready || compare(cluster.options(), &meta).is_err() {
        return None;
    }
    tracing::warn!("a rebuild has recreated the keyspace or made its history longer: weir now uses it");
    Some(Arc::new(Keyspace::new(&cluster.options().prefix, meta)))
}
