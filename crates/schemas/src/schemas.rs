//! The schemas of intents: in memory, from files and from a registry.

use std::{any::Any, collections::BTreeSet, io, sync::Arc};

use tokio::sync::Mutex;
use weir_core::{
    basis::current::Current,
    intent::{
        dead_letter::{
            DeadLetter,
            DeadLetterReason::{NotDecodable, UnknownSchema},
        },
        fields::FieldMap,
    },
    ports::{Content, HeldSchemas, Preparing, SchemaId, Schemas, SchemasUnavailable},
};

use crate::{
    place::Place,
    plan::{Compiling, Definition, Format, shortened},
    registry::Registry,
    table::{KnownSchema, SchemaTable},
};

/// The first byte of the frame of a Schema Registry; behind it is the schema's id, 4 bytes, the highest first.
const MAGIC: u8 = 0;
/// How many schemas are asked for until they are in memory.
const TOGETHER: usize = 50;

/// Reads intents with the frame of a Schema Registry.
#[derive(Debug)]
pub struct IntentSchemas {
    format: Format,
    place: Arc<Place>,
    registry: Option<Registry>,
    /// Schemas of the registry that stay in memory, at most.
    kept: usize,
    table: Arc<Current<SchemaTable>>,
    /// Schemas of files: these stay.
    files: Vec<(SchemaId, Arc<KnownSchema>)>,
    /// Held by who asks the registry, so that lanes do not ask for the same schema.
    asking: Mutex<()>,
}

/// A schema in a file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    pub id: SchemaId,
    pub problem: String,
}

impl IntentSchemas {
    /// Reads fields where the map has them, by schemas of these files (id and text) and of a registry. Fails with the schemas of files that
    /// cannot be used, each with what is wrong.
    pub fn new(
        format: Format,
        map: &FieldMap,
        files: impl IntoIterator<Item = (SchemaId, String)>,
        registry: Option<(Registry, usize)>,
    ) -> Result<Self, Vec<FileError>> {
        let place = Arc::new(Place::root(map));
        let (mut compiled, mut unusable) = (Vec::new(), Vec::new());
        for (id, text) in files {
            let definition = Definition { schema_type: format.schema_type().to_owned(), text, references: Vec::new() };
            let plan = Compiling::begin(format, &place, definition).map_err(no_thread).and_then(Compiling::wait);
            match plan {
                Ok(plan) => compiled.push((id, KnownSchema::found(Ok(plan), 0))),
                Err(problem) => unusable.push(FileError { id, problem }),
            }
        }
        if !unusable.is_empty() {
            return Err(unusable);
        }
        let (registry, kept) = registry.map_or((None, 0), |(registry, kept)| (Some(registry), kept));
        let (table, asking) = (Current::new(Arc::new(SchemaTable::default())), Mutex::default());
        Ok(Self { format, place, registry, kept, table, files: compiled, asking })
    }

    /// How many schemas of the registry stay in memory.
    #[cfg(all(test, feature = "avro", feature = "protobuf"))]
    pub(crate) fn in_memory(&self) -> usize {
        self.table.get().len()
    }

    fn entry(&self, id: SchemaId) -> Option<Arc<KnownSchema>> {
        let file = self.files.iter().find(|(known, _)| *known == id);
        file.map(|(_, entry)| Arc::clone(entry)).or_else(|| self.table.get().get(id))
    }

    /// The entries of these ids that need no asking.
    fn fresh(&self, ids: &BTreeSet<SchemaId>) -> Vec<(SchemaId, Arc<KnownSchema>)> {
        let fresh = ids.iter().filter_map(|&id| Some((id, self.entry(id).filter(|entry| entry.is_fresh())?)));
        fresh.collect()
    }

    /// All of these ids, asked for where they are not in memory.
    async fn all(&self, ids: &BTreeSet<SchemaId>) -> Result<HeldSchemas, SchemasUnavailable> {
        let mut held = self.fresh(ids);
        if held.len() < ids.len()
            && let Some(registry) = &self.registry
        {
            let _asking = self.asking.lock().await;
            held = self.fresh(ids);
            let known: BTreeSet<SchemaId> = held.iter().map(|(id, _)| *id).collect();
            let wanted: Vec<SchemaId> = ids.difference(&known).copied().collect();
            for wanted in wanted.chunks(TOGETHER) {
                let mut new = Vec::new();
                let outcome = self.ask(registry, wanted, &mut new).await;
                // Should the next ones fail, or this be dropped: what is known by now is not asked for again.
                self.table.replace(Arc::new(self.table.get().with(&new, self.kept)));
                log(&new);
                outcome?;
                held.extend(new);
            }
        }
        Ok(held.into_iter().map(|(_, entry)| entry as Arc<dyn Any + Send + Sync>).collect())
    }

    /// Asks for these ids, one after the other, and adds what is known of each.
    async fn ask(
        &self,
        registry: &Registry,
        ids: &[SchemaId],
        new: &mut Vec<(SchemaId, Arc<KnownSchema>)>,
    ) -> Result<(), SchemasUnavailable> {
        for &id in ids {
            new.push((id, self.found(registry.schema(id).await?).await?));
        }
        Ok(())
    }

    async fn found(&self, definition: Result<Definition, String>) -> Result<Arc<KnownSchema>, SchemasUnavailable> {
        let text_bytes = definition.as_ref().map_or(0, |definition| definition.texts().map(str::len).sum());
        let plan = match definition {
            Ok(definition) => {
                let compiling = Compiling::begin(self.format, &self.place, definition);
                compiling.map_err(|error| SchemasUnavailable(no_thread(error)))?.done().await
            }
            Err(problem) => Err(shortened(&problem)),
        };
        Ok(KnownSchema::found(plan, text_bytes))
    }
}

/// Logs the schemas that were asked for; of unusable ones only the first, because each record may name another.
fn log(new: &[(SchemaId, Arc<KnownSchema>)]) {
    let usable = new.iter().filter(|(_, entry)| entry.plan.is_ok());
    usable.for_each(|(id, _)| tracing::info!(schema = id, "loaded a schema of intents"));
    let mut unusable = new.iter().filter_map(|(id, entry)| Some((id, entry.plan.as_ref().err()?)));
    if let Some((id, problem)) = unusable.next() {
        let more = unusable.count();
        tracing::warn!(more, "schema {id} {problem}: its records are dead letters (unknown_schema)");
    }
}

fn no_thread(error: io::Error) -> String {
    format!("no thread can be started for a schema: {error}")
}

impl Schemas for IntentSchemas {
    fn needs(&self, value: &[u8]) -> Option<SchemaId> {
        match self.format {
            Format::JsonSchema => None,
            Format::Avro | Format::Protobuf => Some(split(value)?.0),
        }
    }

    fn prepare<'s>(&'s self, ids: &'s BTreeSet<SchemaId>) -> Preparing<'s> {
        Box::pin(self.all(ids))
    }

    fn read<'a>(&self, value: &'a [u8]) -> Result<Content<'a>, DeadLetter> {
        let (id, content) = split(value).ok_or_else(|| without_frame(value))?;
        if self.format == Format::JsonSchema {
            return Ok(Content::Json(content));
        }
        let unknown = |why: &str| DeadLetter::new(UnknownSchema, format!("schema {id} {why}"));
        match self.entry(id).as_deref() {
            Some(KnownSchema { plan: Ok(plan), .. }) => plan.read(id, content).map(Content::Fields),
            Some(KnownSchema { plan: Err(why), .. }) => Err(unknown(why)),
            None if self.registry.is_some() => Err(unknown("was not looked up")),
            None => Err(unknown("is not in schemas.files")),
        }
    }
}

/// Id and content of a value; `None` where it has no frame.
fn split(value: &[u8]) -> Option<(SchemaId, &[u8])> {
    let (&magic, rest) = value.split_first()?;
    let (id, content) = rest.split_first_chunk()?;
    (magic == MAGIC).then_some((SchemaId::from_be_bytes(*id), content))
}

fn without_frame(value: &[u8]) -> DeadLetter {
    let message = match value {
        [MAGIC, ..] => format!("the value has {} bytes, less than the frame of a Schema Registry (5)", value.len()),
        [_, ..] | [] => {
            "the value does not begin with the byte 0 of a Schema Registry's frame: publish it with the registry's serializer, \
             or change intent.format"
                .to_owned()
        }
    };
    DeadLetter::new(NotDecodable, message)
}
