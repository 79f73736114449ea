//! The schemas that a batch names.

use std::{sync::Arc, time::Duration};

use weir_core::ports::{Clock, HeldSchemas, Sink, Source, Store};

use super::{Interruption, Lane, LaneState, serving::Until};
use crate::{
    backoff::{LONGEST_BACKOFF, backoff},
    group_loop::GroupLoop,
    observer::Event,
};

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Makes the schemas of a batch ready, and holds them. Waits for the registry as long as it takes: nothing says what an intent
    /// is whose schema is not known. Serves the group and unavailable shards meanwhile, and notes the commit of the batch before.
    pub(super) async fn prepare_schemas(
        &mut self,
        state: &mut LaneState,
        batch: &S::Batch,
    ) -> Result<HeldSchemas, Interruption> {
        let ids = self.decider.schemas_of(batch);
        let fields = Arc::clone(&self.decider.fields);
        let Some(schemas) = fields.schemas().filter(|_| !ids.is_empty()) else { return Ok(HeldSchemas::new()) };
        let mut pauses = backoff();
        let mut waited = false;
        loop {
            let (_, mut serving) = self.store_and_serving(&state.group.committed, Until::Interrupted);
            match serving.during(schemas.prepare(&ids)).await? {
                Ok(held) => {
                    if waited {
                        tracing::info!("the schemas are there: this lane continues");
                        state.unavailable.show(&self.status);
                    }
                    return Ok(held);
                }
                Err(error) => {
                    tracing::warn!("{error}; intents wait, asking again");
                    self.metrics.happened(Event::SchemasUnavailable);
                    self.status.set_trouble(Some(error.to_string()));
                    waited = true;
                }
            }
            self.wait_a_little(state, pauses.next().unwrap_or(LONGEST_BACKOFF)).await?;
            self.poll_commit(state, Duration::ZERO).await?;
            self.service_unavailable(state).await?;
        }
    }
}
