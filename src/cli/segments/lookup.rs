//! `weir segments lookup`: which segment users are in.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde::Serialize;
use weir_core::segment::{LookupScratch, SegmentSet, UserSegment};

use super::{
    SetArgs,
    input::{Lines, id_text},
    load, progress,
};
use crate::cli::output::OutputForm;

const BATCH: usize = 10_000;

/// `weir segments lookup`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").required(true).multiple(true).args(["users", "file"])))]
pub struct LookupArgs {
    #[command(flatten)]
    set: SetArgs,
    /// The users' ids
    #[arg(value_name = "USER")]
    users: Vec<String>,
    /// A file of user ids, one per line; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

#[derive(Debug, Serialize)]
struct LookupReport<'s> {
    user_id: &'s str,
    segment: Option<&'s str>,
    in_several: bool,
    /// The other segments that the user is in, which do not count.
    also_in: Vec<&'s str>,
}

impl<'s> LookupReport<'s> {
    fn of(set: &'s SegmentSet, user_id: &'s str, found: UserSegment) -> Self {
        let others = match found {
            UserSegment::InSeveral(first) => first + 1..set.segments().len(),
            UserSegment::Nowhere | UserSegment::In(_) => 0..0,
        };
        let name = |at: usize| set.segments()[at].name.as_str();
        let also_in: Vec<&str> = others.filter(|&at| set.contains(at, user_id)).map(name).collect();
        Self { user_id, segment: found.segment().map(name), in_several: !also_in.is_empty(), also_in }
    }

    fn as_text(&self) -> String {
        let segment = self.segment.unwrap_or("in no segment");
        let also = if self.in_several { format!(" (and in {})", self.also_in.join(", ")) } else { String::new() };
        format!("{}: {segment}{also}", self.user_id)
    }
}

/// Answers while it is asked, a batch at a time.
struct LookupAnswers<'s, W> {
    set: &'s SegmentSet,
    form: OutputForm,
    out: W,
    printed: u64,
    scratch: LookupScratch,
    found: Vec<UserSegment>,
}

impl<W: Write> LookupAnswers<'_, W> {
    fn answer(&mut self, users: &[String]) -> anyhow::Result<()> {
        self.set.lookup_many(users.iter().map(|user| self.set.number(user)), &mut self.scratch, &mut self.found);
        for (user, &found) in users.iter().zip(&self.found) {
            let report = LookupReport::of(self.set, user, found);
            match self.form {
                OutputForm::Text => writeln!(self.out, "{}", report.as_text())?,
                OutputForm::Json => {
                    self.out.write_all(if self.printed == 0 { b"[\n" } else { b",\n" })?;
                    serde_json::to_writer(&mut self.out, &report).map_err(io::Error::from).context("cannot print")?;
                }
            }
            self.printed += 1;
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        match (self.form, self.printed) {
            (OutputForm::Text, _) => {}
            (OutputForm::Json, 0) => self.out.write_all(b"[]\n")?,
            (OutputForm::Json, _) => self.out.write_all(b"\n]\n")?,
        }
        Ok(self.out.flush()?)
    }
}

pub(super) async fn run(args: &LookupArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let set = load(&args.set).await?;
    let (scratch, found) = Default::default();
    let out = BufWriter::new(out);
    let mut answers = LookupAnswers { set: &set, form: args.output, out, printed: 0, scratch, found };
    for users in args.users.chunks(BATCH) {
        answers.answer(users)?;
    }
    if let Some(path) = &args.file {
        let progress = progress::reading(&[path]);
        let mut lines = Lines::open(path, &progress)?;
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(user) = lines.next()? {
            let user = id_text(user).map(str::to_owned);
            batch.push(user.map_err(|problem| lines.wrong(problem))?);
            if batch.len() == BATCH {
                answers.answer(&batch)?;
                batch.clear();
            }
        }
        answers.answer(&batch)?;
        progress.finish_and_clear();
    }
    answers.finish()
}
