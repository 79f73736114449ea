//! Loading a set: the manifest, then each object, checked; all of it or nothing.

mod error;
mod object;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use weir_core::segment::{MAX_MANIFEST_BYTES, Manifest, ManifestSegment, Members, Segment, SegmentSet, UserIds};

use self::object::{Loaded, check_cardinality, load_object};
use super::object_store::{StoredObject, Version};
pub use error::{SegmentProblem, SegmentsError};

/// How often it is looked whether an old set is still in use.
const RETIRED_LOOK: Duration = Duration::from_millis(100);
/// How often at most (an hour): a lane holds a set for one batch, unless Redis keeps that waiting.
const RETIRED_LOOKS: u32 = 36_000;

/// A set's manifest, and what was last read from there.
#[derive(Debug)]
pub struct SegmentSource {
    manifest: StoredObject,
    user_id_prefix: String,
    version: Option<Version>,
    set: Option<Arc<SegmentSet>>,
    /// The manifest whose set was refused. As long as it is the same, only what was wrong is looked at again.
    refused: Option<(Version, Refusal)>,
}

#[derive(Debug)]
enum Refusal {
    Manifest(SegmentsError),
    /// An object is.
    Object(Manifest, Culprit),
}

/// The object for which a set was refused.
#[derive(Debug)]
struct Culprit {
    at: usize,
    /// The state in which it was read; `None` if it could not be, or the store does not tell.
    version: Option<Version>,
    error: SegmentsError,
}

impl SegmentSource {
    /// The set of this manifest; `user_id_prefix` is taken off ids that are numbers (empty for none).
    pub fn new(manifest: StoredObject, user_id_prefix: impl Into<String>) -> Self {
        Self { manifest, user_id_prefix: user_id_prefix.into(), version: None, set: None, refused: None }
    }

    /// Reads the set if the manifest is not the one of the last set read; `None` if it is.
    ///
    /// Objects that the last set had already are not read again. After an error, the next call looks first at what
    /// was wrong, and downloads nothing while that is in the same state.
    pub async fn load(&mut self) -> Result<Option<Arc<SegmentSet>>, SegmentsError> {
        let known = self.refused.as_ref().map(|(version, _)| version).or(self.version.as_ref());
        let read = self.manifest.get_if_changed(known, MAX_MANIFEST_BYTES).await?;
        let Some((bytes, version)) = read else { return self.load_refused().await };
        self.refused = None;
        if version.is_some() && version == self.version {
            // A refused set was taken back.
            return Ok(None);
        }
        match Manifest::parse(&bytes) {
            Ok(manifest) => self.take(manifest, version, None).await.map(Some),
            Err(problem) => {
                let error = SegmentsError::Manifest { location: self.manifest.location(), problem };
                let why = Refusal::Manifest(error.clone());
                self.refused = version.map(|version| (version, why));
                Err(error)
            }
        }
    }

    async fn load_refused(&mut self) -> Result<Option<Arc<SegmentSet>>, SegmentsError> {
        match self.refused.take() {
            None => Ok(None),
            Some((version, Refusal::Manifest(error))) => {
                self.refused = Some((version, Refusal::Manifest(error.clone())));
                Err(error)
            }
            Some((version, Refusal::Object(manifest, culprit))) => {
                self.take(manifest, Some(version), Some(culprit)).await.map(Some)
            }
        }
    }

    /// Reads what the manifest names and keeps it, or keeps in mind why not.
    async fn take(
        &mut self,
        manifest: Manifest,
        version: Option<Version>,
        last_time: Option<Culprit>,
    ) -> Result<Arc<SegmentSet>, SegmentsError> {
        match self.read_segments(&manifest, last_time).await {
            Ok(segments) => {
                let set = Arc::new(self.assemble(manifest, segments).await?);
                self.version = version;
                if let Some(old) = self.set.replace(Arc::clone(&set)) {
                    tokio::spawn(retire(old));
                }
                Ok(set)
            }
            Err(culprit) => {
                let error = culprit.error.clone();
                let why = Refusal::Object(manifest, culprit);
                self.refused = version.map(|version| (version, why));
                Err(error)
            }
        }
    }

    /// Reads the segments, the one that was bad last time first.
    async fn read_segments(
        &self,
        manifest: &Manifest,
        mut last_time: Option<Culprit>,
    ) -> Result<Vec<Segment>, Culprit> {
        let first = last_time.as_ref().map(|culprit| culprit.at);
        let others = (0..manifest.segments.len()).filter(move |at| Some(*at) != first);
        let mut segments = BTreeMap::new();
        for at in first.into_iter().chain(others) {
            segments.insert(at, self.read_segment(manifest, at, last_time.take()).await?);
        }
        Ok(segments.into_values().collect())
    }

    async fn read_segment(
        &self,
        manifest: &Manifest,
        at: usize,
        last_time: Option<Culprit>,
    ) -> Result<Segment, Culprit> {
        let entry = &manifest.segments[at];
        let bad = |problem, version| Culprit { at, version, error: self.refusal(manifest, entry, problem) };
        let segment = |members| Segment { name: entry.name.clone(), sha256: entry.sha256, bytes: entry.bytes, members };
        if let Some(members) = self.loaded_already(manifest, entry) {
            return check_cardinality(&members, entry).map(|()| segment(members)).map_err(|problem| bad(problem, None));
        }
        let object = self.manifest.beside(entry.object.as_str());
        let known = last_time.as_ref().and_then(|culprit| culprit.version.as_ref());
        match (load_object(&object, manifest.user_id, entry, known).await, last_time) {
            (Ok(Loaded::Good(members)), _) => Ok(segment(Arc::new(members))),
            (Ok(Loaded::Bad(problem, version)), _) => Err(bad(problem, version)),
            (Ok(Loaded::Unchanged), Some(culprit)) => Err(culprit),
            (Ok(Loaded::Unchanged), None) => Err(bad(SegmentProblem::Stopped("nothing was read".to_owned()), None)),
            (Err(error), _) => Err(Culprit { at, version: None, error: error.into() }),
        }
    }

    fn loaded_already(&self, manifest: &Manifest, entry: &ManifestSegment) -> Option<Arc<Members>> {
        let set = self.set.as_ref().filter(|set| set.user_id() == manifest.user_id)?;
        let same = |segment: &&Segment| segment.sha256 == entry.sha256 && segment.bytes == entry.bytes;
        set.segments().iter().find(same).map(|segment| Arc::clone(&segment.members))
    }

    async fn assemble(&self, manifest: Manifest, segments: Vec<Segment>) -> Result<SegmentSet, SegmentsError> {
        let ids = UserIds::new(manifest.user_id, self.user_id_prefix.as_str());
        let first = manifest.segments[0].clone();
        let version = manifest.version.clone();
        tokio::task::spawn_blocking(move || SegmentSet::new(version, ids, segments))
            .await
            .map_err(|stopped| self.refusal(&manifest, &first, SegmentProblem::Stopped(stopped.to_string())))
    }

    fn refusal(&self, manifest: &Manifest, entry: &ManifestSegment, problem: SegmentProblem) -> SegmentsError {
        SegmentsError::Segment {
            segment: entry.name.clone(),
            version: manifest.version.clone(),
            location: self.manifest.beside(entry.object.as_str()).location(),
            problem: Box::new(problem),
        }
    }
}

/// Keeps an old set until nobody else does, and frees it on a thread that may block: that takes tens of milliseconds for
/// a large one, and would otherwise be the work of the lane that happens to let go of it last.
async fn retire(set: Arc<SegmentSet>) {
    for _ in 0..RETIRED_LOOKS {
        if Arc::strong_count(&set) == 1 {
            break;
        }
        tokio::time::sleep(RETIRED_LOOK).await;
    }
    // It ends badly only when the runtime ends, and then the set is freed with it.
    let _ = tokio::task::spawn_blocking(move || drop(set)).await;
}

impl weir_worker::refresh::RefreshSource for SegmentSource {
    type Value = SegmentSet;
    type Error = SegmentsError;

    const NAME: &'static str = "segments";

    fn version(value: &SegmentSet) -> &str {
        value.version()
    }

    fn is_temporary(error: &SegmentsError) -> bool {
        match error {
            SegmentsError::Object(error) => error.problem.is_temporary(),
            SegmentsError::Manifest { .. } | SegmentsError::Segment { .. } => false,
        }
    }

    async fn load(&mut self) -> Result<Option<Arc<SegmentSet>>, SegmentsError> {
        Self::load(self).await
    }
}
