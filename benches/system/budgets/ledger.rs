//! The ledger that leases are taken from: `lua/take.lua` on a real server, by the clock of the simulation.
//!
//! A day of 50 instances is millions of calls, so the first ones of a case are made by the script and by its reference, which
//! must agree, and the others by the reference alone.

use anyhow::{Context, Result, ensure};
use redis::{Connection, Pipeline};
use testkit::redis::{LONGEST_REPLY, RedisServer, connect};
use weir_core::limit::{
    budget::{
        SpanNow,
        ledger::{CountId, GiveBack, TakeAnswer, TakeTurn, TokenBook},
    },
    share::{Reference as _, TurnNumber},
};

use super::load::time;

/// The script as weir sends it.
const TAKE: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/share/clock.lua"),
    include_str!("../../../lua/share/members.lua"),
    include_str!("../../../lua/take.lua")
);
/// How it reads the server's clock, and how it reads that of the simulation: seconds and microseconds.
const SERVER_CLOCK: &str = "redis.call('TIME')";
const CLOCK: &str = "redis.call('HMGET', 'clock', 's', 'us')";
const EPOCH: &str = "bench";

/// A server that knows the script.
pub(super) struct Scripts {
    connection: Connection,
    take: String,
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
        ensure!(TAKE.matches(SERVER_CLOCK).count() == 1, "the script reads the clock elsewhere than in clock.lua");
        let source = TAKE.replace(SERVER_CLOCK, CLOCK);
        let take = redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection)?;
        Ok(Self { connection, take, cases: 0, _server: server })
    }

    fn call(&mut self, at: i64, args: &[String]) -> Result<Vec<i64>> {
        let now = time(at).millis();
        let (seconds, micros) = (now.div_euclid(1_000), now.rem_euclid(1_000) * 1_000);
        let mut both = Pipeline::with_capacity(2);
        both.cmd("HSET").arg("clock").arg("s").arg(seconds).arg("us").arg(micros).ignore();
        both.cmd("EVALSHA").arg(&self.take).arg(2).arg("epoch").arg(format!("budget {}", self.cases)).arg(args);
        let (numbers,): (Vec<i64>,) = both.query(&mut self.connection)?;
        Ok(numbers)
    }
}

pub(super) struct Ledger<'s> {
    book: TokenBook,
    scripts: &'s mut Scripts,
    /// Calls that the script has yet to make.
    to_check: u32,
}

impl<'s> Ledger<'s> {
    /// An empty one. So many calls are made by the script.
    pub(super) fn new(scripts: &'s mut Scripts, to_check: u32) -> Self {
        scripts.cases += 1;
        Self { book: TokenBook::default(), scripts, to_check }
    }

    pub(super) fn turn(
        &mut self,
        at: i64,
        (holder, number): (&str, TurnNumber),
        turn: &TakeTurn,
    ) -> Result<TakeAnswer> {
        let answer = self.book.turn(holder, number, turn, time(at)).context("a later turn was taken before")?;
        if self.is_checked() {
            let TakeTurn { span, limit, need, want, unit, least, lease_ms, held, back, owed: _ } = turn;
            let (kind, from, to) = match span {
                SpanNow::Rolling { window_ms } => ("r", *window_ms, 0),
                SpanNow::Period { start, end } => ("p", start.millis(), end.millis()),
                SpanNow::Total => ("t", 0, 0),
            };
            let mut args = vec![holder.to_owned(), number.run.to_string(), number.number.to_string()];
            args.extend([EPOCH.to_owned(), time(at).millis().to_string()]);
            args.extend([kind.to_owned(), from.to_string(), to.to_string()]);
            args.extend([limit, need, want, unit, least].map(u64::to_string));
            args.extend([lease_ms.to_string(), held.to_string()]);
            // Nothing is owed, and it is no total of a campaign.
            args.extend([back.iter().map(given_back).collect::<Vec<_>>().join(" "), String::new(), "0".to_owned()]);
            let numbers = self.scripts.call(at, &args).context("take.lua")?;
            let TakeAnswer { granted, used, leased, bucket, free_in_ms, counted_for_ms: _, count_id } = answer;
            let counts = [granted, used, leased].map(i64::try_from);
            let expected =
                [counts[0]?, counts[1]?, counts[2]?, bucket, free_in_ms.unwrap_or(-1), time(at).millis(), count_id.0];
            ensure!(numbers == expected, "take.lua: {numbers:?}, its reference: {expected:?}, of {turn:?}");
        }
        Ok(answer)
    }

    fn is_checked(&mut self) -> bool {
        let is_checked = self.to_check > 0;
        self.to_check = self.to_check.saturating_sub(1);
        is_checked
    }
}

fn given_back(GiveBack { span, bucket, count_id: CountId(count), tokens }: &GiveBack) -> String {
    let field = match span {
        SpanNow::Rolling { .. } => bucket.to_string(),
        SpanNow::Period { .. } => format!("p{bucket}"),
        SpanNow::Total => "t".to_owned(),
    };
    format!("{field}:{tokens}:{count}")
}
