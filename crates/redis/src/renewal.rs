//! Takes up a keyspace that a rebuild has made anew in place of the one that was lost.

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
    tracing::warn!("the keyspace was made anew by a rebuild: taking it up");
    Some(Arc::new(Keyspace::new(&cluster.options().prefix, meta)))
}
