//! What a lane reports of the batches that are traced.

use std::ops::ControlFlow;

use super::*;
use crate::trace::{BatchReport, BatchTrace, Tracer};

/// Records and error of a batch whose commit has ended.
type Report = (usize, Option<String>);

/// Samples every batch, and has what was reported.
#[derive(Clone, Default)]
struct Every(Arc<RwLock<Vec<Report>>>);

impl Tracer for Every {
    fn begin(&self) -> Option<Box<dyn BatchTrace>> {
        Some(Box::new(self.clone()))
    }
}

impl BatchTrace for Every {
    fn link(&mut self, _: &[u8]) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn end(self: Box<Self>, report: &BatchReport<'_>) {
        let store = report.store.expect("each batch asks the store");
        assert!(store.from <= store.to && store.to <= report.commit.from && report.commit.from <= report.commit.to);
        assert_eq!(report.partitions, 1);
        self.0.write().unwrap().push((report.records, report.error.map(str::to_owned)));
    }
}

#[test]
fn every_commit_is_reported_once_and_a_failed_one_with_its_error() {
    let every = Every::default();
    let commits = [Fate::Refused, Fate::Unclear].into();
    let world = done(run(World { commits, tracer: Some(Arc::new(every.clone())), ..World::default() }));
    let reports = every.0.read().unwrap();
    assert_eq!(reports.iter().map(|(records, _)| *records).collect::<Vec<_>>(), world.sizes);
    let errors: Vec<bool> = reports.iter().map(|(_, error)| error.is_some()).collect();
    assert_eq!(errors.iter().filter(|error| **error).count(), 2);
    assert!(errors[0], "{reports:?}");
}
