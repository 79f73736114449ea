//! Reports of active users on a topic: the feed that notes them. A report that is read again has no further effect.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::{
    basis::{origin::Topic, time::Time},
    batch::record::RecordView,
    intent::{dead_letter::DeadLetter, decode::Header},
    limit::pressure::{
        Pressure,
        activity::{ActivityHash, Minute},
        activity_report::{ActivityReader, ReportOutcome},
    },
    ports::StoreError,
};

use super::{observer::BesideTopic, topic_reader::Feed};

#[derive(Debug)]
pub struct Activity {
    pub reader: ActivityReader,
    pub pressure: Arc<Pressure>,
}

/// One report: who was active in which minute, and the minute that it was read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    user: ActivityHash,
    minute: Minute,
    now: Minute,
}

impl Feed for Activity {
    const TOPIC: BesideTopic = BesideTopic::Activity;
    type Item = Reported;
    type Outcome = ReportOutcome;

    fn read(&self, record: &RecordView<'_>, now: Time) -> Result<Reported, DeadLetter> {
        let headers = record.header_pairs().map(|(key, value)| Header { key, value });
        let (user, at) = self.reader.read(record.value, headers, record.timestamp, now)?;
        Ok(Reported { user, minute: at.into(), now: now.into() })
    }

    async fn take(
        &mut self,
        _: &Topic,
        reports: &[Reported],
        outcomes: &mut [Option<ReportOutcome>],
    ) -> Result<(), StoreError> {
        // Users are told to other instances by the minute.
        let mut minutes: BTreeMap<(Minute, Minute), Vec<usize>> = BTreeMap::new();
        for (index, report) in reports.iter().enumerate() {
            minutes.entry((report.minute, report.now)).or_default().push(index);
        }
        for ((minute, now), indices) in minutes {
            let users = indices.iter().map(|index| reports[*index].user);
            let outcome = self.pressure.note(users, minute, now);
            for index in indices {
                outcomes[index] = Some(outcome);
            }
        }
        Ok(())
    }

    fn label(outcome: ReportOutcome) -> Option<&'static str> {
        Some(outcome.as_str())
    }

    async fn any_back(&mut self) -> bool {
        false
    }
}
