//! The ledger that leases are taken from: `lua/take.lua` and `lua/give_back.lua` on a real server, by the clock of the simulation.
//!
//! A day of 50 instances is millions of calls, so the first ones of a case are made by the scripts and by their reference, which
//! must agree, and the others by the reference alone.

use anyhow::{Context, Result, ensure};
use redis::{Connection, Pipeline};
use testkit::redis::{LONGEST_REPLY, RedisServer, connect};
use weir_core::{
    budget::SpanNow,
    ledger::{Book, GiveBack, TakeAnswer, TakeRequest},
    limit::share::TurnNumber,
};

use super::load::time;

/// The scripts as weir sends them.
const TAKE: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/share/clock.lua"),
    include_str!("../../../lua/share/members.lua"),
    include_str!("../../../lua/ledger/leases.lua"),
    include_str!("../../../lua/take.lua")
);
const GIVE_BACK: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/share/clock.lua"),
    include_str!("../../../lua/share/members.lua"),
    include_str!("../../../lua/ledger/leases.lua"),
    include_str!("../../../lua/give_back.lua")
);
/// How they read the server's clock, and how they read that of the simulation: seconds and microseconds.
const SERVER_CLOCK: &str = "redis.call('TIME')";
const CLOCK: &str = "redis.call('HMGET', 'clock', 's', 'us')";
const EPOCH: &str = "bench";

/// A server that knows the scripts.
pub(super) struct Scripts {
    connection: Connection,
    take: String,
    give_back: String,
    /// Of budgets that were asked for.
    cases: u32,
    // It ends last.
    _server: RedisServer,
}

impl Scripts {
    pub(super) fn start() -> Result<Self> {
        let server = RedisServer::start::<&str>(&[])?;
        let mut connection = connect(LONGEST_REPLY, &redis::Client::open(server.url())?)?;
        redis::cmd("SET").arg("epoch").arg(EPOCH).exec(&mut connection)?;
        let mut load = |source: &str| -> Result<String> {
            ensure!(source.matches(SERVER_CLOCK).count() == 1, "a script reads the clock elsewhere than in clock.lua");
            let source = source.replace(SERVER_CLOCK, CLOCK);
            Ok(redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection)?)
        };
        let (take, give_back) = (load(TAKE)?, load(GIVE_BACK)?);
        Ok(Self { connection, take, give_back, cases: 0, _server: server })
    }

    fn call(&mut self, script: Script, at: i64, args: &[String]) -> Result<Vec<i64>> {
        let sha = match script {
            Script::Take => &self.take,
            Script::GiveBack => &self.give_back,
        };
        let now = time(at).millis();
        let (seconds, micros) = (now.div_euclid(1_000), now.rem_euclid(1_000) * 1_000);
        let mut both = Pipeline::with_capacity(2);
        both.cmd("HSET").arg("clock").arg("s").arg(seconds).arg("us").arg(micros).ignore();
        both.cmd("EVALSHA").arg(sha).arg(2).arg("epoch").arg(format!("budget {}", self.cases)).arg(EPOCH).arg(args);
        let (numbers,): (Vec<i64>,) = both.query(&mut self.connection)?;
        Ok(numbers)
    }
}

#[derive(Clone, Copy)]
enum Script {
    Take,
    GiveBack,
}

/// The ledger of one case.
pub(super) struct Ledger<'s> {
    book: Book,
    scripts: &'s mut Scripts,
    /// Calls that the scripts have yet to make.
    to_check: u32,
}

impl<'s> Ledger<'s> {
    /// An empty one. So many calls are made by the scripts.
    pub(super) fn new(scripts: &'s mut Scripts, to_check: u32) -> Self {
        scripts.cases += 1;
        Self { book: Book::default(), scripts, to_check }
    }

    /// Takes tokens at a moment.
    pub(super) fn take(&mut self, at: i64, holder: &str, request: &TakeRequest) -> Result<TakeAnswer> {
        let answer = self.book.take(time(at), holder, request);
        if self.is_checked() {
            let TakeRequest { span, limit, need, want, unit, least, lease_ms, turn, .. } = request;
            let (kind, from, to) = match span {
                SpanNow::Rolling { window_ms } => ("r", *window_ms, 0),
                SpanNow::Period { start, end } => ("p", start.millis(), end.millis()),
                SpanNow::Total => ("t", 0, 0),
            };
            let mut args = vec![holder.to_owned(), kind.to_owned(), from.to_string(), to.to_string()];
            args.extend([limit, need, want, unit, least].map(u64::to_string));
            args.extend([*lease_ms, time(at).millis()].map(|number| number.to_string()));
            args.extend(turn_args(*turn));
            // It is no total of a campaign.
            args.push("0".to_owned());
            let numbers = self.scripts.call(Script::Take, at, &args).context("take.lua")?;
            let TakeAnswer { granted, used, leased, bucket, free_in_ms, counted_for_ms: _, count_id } = answer;
            let counts = [granted, used, leased].map(i64::try_from);
            let expected =
                [counts[0]?, counts[1]?, counts[2]?, bucket, free_in_ms.unwrap_or(-1), time(at).millis(), count_id.0];
            ensure!(numbers == expected, "take.lua: {numbers:?}, its reference: {expected:?}, of {request:?}");
        }
        Ok(answer)
    }

    /// Gives tokens back at a moment; how many were taken back.
    pub(super) fn give_back(&mut self, at: i64, holder: &str, given: &GiveBack) -> Result<u64> {
        let back = self.book.give_back(time(at), holder, given);
        if self.is_checked() {
            let field = match given.span {
                SpanNow::Rolling { .. } => given.bucket.to_string(),
                SpanNow::Period { .. } => format!("p{}", given.bucket),
                SpanNow::Total => "t".to_owned(),
            };
            let mut args = vec![holder.to_owned(), field, given.tokens.to_string(), given.count_id.0.to_string()];
            args.extend(turn_args(given.turn));
            let numbers = self.scripts.call(Script::GiveBack, at, &args).context("give_back.lua")?;
            ensure!(
                numbers == [i64::try_from(back)?, time(at).millis()],
                "give_back.lua: {numbers:?}, its reference: {back}, of {given:?}"
            );
        }
        Ok(back)
    }

    fn is_checked(&mut self) -> bool {
        let is_checked = self.to_check > 0;
        self.to_check = self.to_check.saturating_sub(1);
        is_checked
    }
}

/// The run and the number of a turn, as the scripts have them.
fn turn_args(turn: Option<TurnNumber>) -> [String; 2] {
    let TurnNumber { run, number } = turn.unwrap_or(TurnNumber { run: 0, number: 0 });
    [run.to_string(), number.to_string()]
}
