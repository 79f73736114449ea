//! How far a rebuild is, on stderr: a bar on a terminal, else a line now and then.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar};
use weir_kafka::extents::Span;

use crate::cli::output;

/// How often a line is written where stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// One bar over all passes of a topic.
pub(super) struct Progress {
    what: &'static str,
    bar: ProgressBar,
    before: u64,
    told: Instant,
    lines: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Self {
        let form = "{prefix}  {bar:30}  {human_pos} of {human_len} records, {per_sec}, {eta} left  {msg}";
        let bar = output::progress(Some(0), form).with_prefix(what);
        Self { what, bar, before: 0, told: Instant::now(), lines: !io::stderr().is_terminal() }
    }

    pub(super) fn more(&mut self, spans: &[Span]) {
        self.before = self.bar.position();
        let records = spans.iter().map(|span| (span.to - span.from).max(0).unsigned_abs()).sum::<u64>();
        self.bar.set_length(self.before + records);
        self.bar.set_message("");
    }

    pub(super) fn at(&mut self, spans: &[Span], next: &BTreeMap<i32, i64>) {
        let done = |span: &Span| next.get(&span.partition).map_or(0, |next| (*next.min(&span.to) - span.from).max(0));
        let done: i64 = spans.iter().map(done).sum();
        self.bar.set_position(self.before + done.unsigned_abs());
        if self.lines && self.told.elapsed() >= LINE_EVERY {
            let (bar, what) = (&self.bar, self.what);
            self.say(&format!(
                "{what}: {} of {} records, {:.0} a second, {} left",
                bar.position(),
                bar.length().unwrap_or_default(),
                bar.per_sec(),
                HumanDuration(bar.eta())
            ));
        }
    }

    /// Nothing to read until what is being decided is visible.
    pub(super) fn waiting(&mut self, left: Duration) {
        let seconds = left.as_secs() + 1;
        self.bar.set_message(format!("waiting {seconds} s for what was decided before the shards were marked"));
        if self.lines && self.told.elapsed() >= LINE_EVERY {
            self.say(&format!("waiting {seconds} s for what was decided before the shards were marked"));
        }
    }

    fn say(&mut self, line: &str) {
        self.told = Instant::now();
        // Where stderr is closed, nobody wants to know.
        let _ = writeln!(io::stderr(), "{line}");
    }

    pub(super) fn done(self) {
        self.bar.finish();
    }
}
