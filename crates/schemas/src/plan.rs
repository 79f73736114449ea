//! A schema, made ready for reading.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use tokio::sync::oneshot;
use weir_core::{
    intent::dead_letter::DeadLetter,
    ports::{SchemaFields, SchemaId},
};

use crate::{cursor::Misfit, place::Place};

/// Schemas that one schema refers to, and itself, have so many bytes together, at most.
pub(crate) const MAX_TEXT_BYTES: usize = 4 << 20;
/// What a part of a plan takes in memory, in bytes, at most: a node of Avro's, or a member of a message.
const PART_BYTES: usize = 64;
/// The stack of the thread that compiles: more than the deepest schema takes that is read.
const STACK_BYTES: usize = 64 << 20;
/// Characters of a problem that are told, at most: it goes into logs and headers, and what a schema has wrong can be long.
const MAX_PROBLEM_CHARS: usize = 300;

/// What is behind a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON: it says itself what it is, so its schema is not looked up.
    JsonSchema,
    /// Avro's binary encoding.
    Avro,
    /// The indexes of a message, and the message in Protobuf's encoding.
    Protobuf,
}

impl Format {
    /// What a registry calls schemas of this format.
    pub(crate) const fn schema_type(self) -> &'static str {
        match self {
            Self::JsonSchema => "JSON",
            Self::Avro => "AVRO",
            Self::Protobuf => "PROTOBUF",
        }
    }

    /// Whether this build reads it.
    pub const fn is_built(self) -> bool {
        match self {
            Self::JsonSchema => true,
            Self::Avro => cfg!(feature = "avro"),
            Self::Protobuf => cfg!(feature = "protobuf"),
        }
    }
}

/// The text of a schema, and of its references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// What a registry calls its format.
    pub schema_type: String,
    pub text: String,
    /// Name and text of each direct or indirect reference, before the schemas that refer to it.
    pub references: Vec<(String, String)>,
}

impl Definition {
    /// The texts, of what it refers to as well.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.references.iter().map(|(_, text)| text.as_str()).chain([self.text.as_str()])
    }
}

/// A plan on its way, on a thread of its own. A schema is written by others, and read by libraries: however deep it is nested, it does
/// not use up the stack of a lane; however long it takes, the lane serves its group; and a panic is a schema that cannot be used.
pub(crate) struct Compiling {
    thread: JoinHandle<()>,
    plan: oneshot::Receiver<Result<Plan, String>>,
}

impl Compiling {
    /// Begins to compile a schema; fails where there is no thread for it.
    pub(crate) fn begin(format: Format, place: &Arc<Place>, definition: Definition) -> io::Result<Self> {
        let (place, (tell, plan)) = (Arc::clone(place), oneshot::channel());
        let thread = thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || {
            let plan = Plan::new(format, &place, &definition).map_err(|problem| shortened(&problem));
            // Who has gone does not want it any more.
            let _ = tell.send(plan);
        })?;
        Ok(Self { thread, plan })
    }

    /// The plan, or why there is none.
    pub(crate) async fn done(self) -> Result<Plan, String> {
        self.plan.await.unwrap_or_else(|_| Err(PANICKED.to_owned()))
    }

    /// The same; blocks.
    pub(crate) fn wait(mut self) -> Result<Plan, String> {
        match self.thread.join() {
            Ok(()) => self.plan.try_recv().unwrap_or_else(|_| Err(PANICKED.to_owned())),
            Err(_) => Err(PANICKED.to_owned()),
        }
    }
}

const PANICKED: &str = "makes the library panic that reads it: please report it";

/// A problem in one line, not longer than can be told.
pub(crate) fn shortened(problem: &str) -> String {
    let line = problem.chars().map(|sign| if sign.is_control() { ' ' } else { sign });
    let mut told: String = line.take(MAX_PROBLEM_CHARS).collect();
    if told.len() < problem.len() {
        told.push_str("...");
    }
    told
}

/// How values of one schema are read.
#[derive(Debug)]
pub(crate) enum Plan {
    #[cfg(feature = "avro")]
    Avro(crate::avro::AvroPlan),
    #[cfg(feature = "protobuf")]
    Protobuf(crate::protobuf::ProtobufPlan),
    /// There is no plan.
    #[cfg(not(any(feature = "avro", feature = "protobuf")))]
    Never(std::convert::Infallible),
}

impl Plan {
    /// Compiles a schema, or says why it cannot be used.
    pub(crate) fn new(format: Format, place: &Place, definition: &Definition) -> Result<Self, String> {
        if definition.schema_type != format.schema_type() {
            let (found, expected) = (&definition.schema_type, format.schema_type());
            return Err(format!("is {found}, and intent.format asks for {expected}"));
        }
        if definition.texts().map(str::len).sum::<usize>() > MAX_TEXT_BYTES {
            return Err(format!("has more than {MAX_TEXT_BYTES} bytes, with what it refers to"));
        }
        match format {
            #[cfg(feature = "avro")]
            Format::Avro => crate::avro::AvroPlan::new(place, definition).map(Self::Avro),
            #[cfg(feature = "protobuf")]
            Format::Protobuf => crate::protobuf::ProtobufPlan::new(place, definition).map(Self::Protobuf),
            #[cfg(not(feature = "avro"))]
            Format::Avro => Err("is in a format that this build does not read".to_owned()),
            #[cfg(not(feature = "protobuf"))]
            Format::Protobuf => Err("is in a format that this build does not read".to_owned()),
            Format::JsonSchema => Err("is not looked up".to_owned()),
        }
    }

    /// What it takes in memory beside its names, in bytes, at most.
    pub(crate) const fn bytes(&self) -> usize {
        let parts = match self {
            #[cfg(feature = "avro")]
            Self::Avro(plan) => plan.parts,
            #[cfg(feature = "protobuf")]
            Self::Protobuf(plan) => plan.parts,
            #[cfg(not(any(feature = "avro", feature = "protobuf")))]
            Self::Never(never) => match *never {},
        };
        PART_BYTES * parts
    }

    /// The fields of a value, without its frame.
    pub(crate) fn read<'a>(&self, id: SchemaId, content: &'a [u8]) -> Result<SchemaFields<'a>, DeadLetter> {
        let letter = |misfit: Misfit| misfit.letter(id, content.len());
        match self {
            #[cfg(feature = "avro")]
            Self::Avro(plan) => plan.read(content).map_err(letter),
            #[cfg(feature = "protobuf")]
            Self::Protobuf(plan) => plan.read(content).map_err(letter),
            #[cfg(not(any(feature = "avro", feature = "protobuf")))]
            Self::Never(never) => match *never {},
        }
    }
}
