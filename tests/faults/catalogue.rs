//! The table of cases: one or more for each row of the catalogue.

use std::time::Duration;

use anyhow::Result;
use testkit::kafka::{Api, Moment};

use crate::{
    catalogue::Promise::{Capped, Forgets},
    ground::Ground,
    rows::{
        brokers,
        budgets::{self, Whose},
        clocks,
        cluster::{self, Waits},
        delivery, group, http,
        inputs::{self, Common},
        limits,
        lost::{self, Tables},
        offsets::{self, Meanwhile},
        pressure, script, sources, topics, wheel,
    },
    trial::{Findings, Order},
};

/// What a case promises about caps and verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// No cap is exceeded, and every verdict is the model's.
    Exact,
    /// No cap is exceeded; verdicts differ from the model's, which knows nothing of the fault (clocks that differ).
    Capped,
    /// Caps may be exceeded by forgotten approvals; the case notes by how much.
    Forgets,
}

/// One fault, and how it is injected.
#[derive(Debug)]
pub struct Case {
    /// The row's number, and a letter where it has several cases.
    pub key: &'static str,
    /// The fault in words: a row of the table.
    pub what: &'static str,
    pub times: usize,
    /// How often in CI; `None`: CI leaves it out, as another test injects it or it takes minutes.
    pub in_ci: Option<usize>,
    /// Promised seconds from the fault's end until new intents are committed.
    pub within_s: u64,
    pub promise: Promise,
    pub run: Run,
}

type Run = fn(&mut Ground, &Order) -> Result<Findings>;

impl Case {
    pub fn row(&self) -> u32 {
        self.key.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).parse().unwrap()
    }

    /// A case, with what most have.
    const fn usual(key: &'static str, what: &'static str, run: Run) -> Self {
        Self { key, what, times: 1, in_ci: None, within_s: 30, promise: Promise::Exact, run }
    }
}

macro_rules! cases {
    ($(case($key:literal, $what:literal, $rows:ident::$row:ident($($of:expr),*)) $(, $field:ident: $value:expr)*;)*) => {
        pub const CASES: &[Case] = &[$(Case {
            $($field: $value,)*
            ..Case::usual($key, $what, |ground, order| $rows::$row(ground, order, $($of),*))
        }),*];
    };
}

// What differs from `usual` is behind each.
cases! {
    case("1a", "worker killed after Redis admitted, before the broker has the records",
        group::killed_at(Api::Produce, Moment::Request)), times: 5, in_ci: Some(1);
    case("1b", "worker killed between produce and commit",
        group::killed_at(Api::EndTransaction, Moment::Request)), times: 5, in_ci: Some(1);
    case("1c", "worker killed after the broker committed, before it has the answer",
        group::killed_at(Api::EndTransaction, Moment::Reply)), times: 5, in_ci: Some(1);
    case("2", "worker killed at random, again and again, under load", group::killed_at_random()), times: 50;
    case("3a", "worker frozen 8 s, past its session, wakes beside its successor",
        group::frozen(Duration::from_secs(8))), times: 2;
    case("3b", "worker frozen 20 s, past its transaction's time-out", group::frozen(Duration::from_secs(20))), times: 2;
    case("4", "rebalance storm: 1, 4, 2, 1 members, two leave by SIGKILL; partitions added", group::storm()), times: 2;
    case("5", "Redis paused for 12 s, twice the poll interval", group::stalled_past_the_poll_interval()), times: 2;
    case("6", "a second worker with the same transactional id", group::twins()), times: 3;
    case("7a", "one of three brokers killed: leader of the intents or an output",
        brokers::leader_killed()), times: 3, within_s: 90;
    case("7b", "one of three brokers killed: coordinator of the group or of transactions",
        brokers::coordinator_killed()), times: 2, within_s: 90;
    case("7c", "two of three brokers killed for 20 s: below `min.insync.replicas`",
        brokers::below_min_insync()), within_s: 90;
    case("7d", "rolling restart of three brokers", brokers::rolling_restart()), within_s: 90;
    case("8a", "the only broker frozen for 20 s under heavy load: transactions time out",
        brokers::broker_frozen()), times: 2, within_s: 60;
    case("8b", "the broker commits and its answer is lost", brokers::commit_unclear()), times: 10, in_ci: Some(2);
    case("8c", "send-offsets hangs for 20 s, past the transaction's time-out", brokers::offsets_hang()), times: 2;
    case("8d", "the only broker frozen for 50 s: the consumer counts as lost and is replaced",
        brokers::consumer_lost()), times: 2, within_s: 60;
    case("9a", "an output topic is deleted", topics::output_missing());
    case("9b", "an ACL denies writing to an output topic", topics::output_denied()), times: 2;
    case("9c", "an output topic's size limit is lowered", topics::output_too_large()), times: 2;
    case("10a", "upstream: aborted transactions, tombstones, a compacted topic", topics::strange_upstream()), times: 3;
    case("10b", "upstream: the last transactions of a topic are aborted, or stay open; P until the lag is 0",
        topics::aborted_upstream()), times: 3, within_s: 10;
    case("11", "the committed offset is deleted by retention", topics::offset_deleted());
    case("12", "a backlog of 10 GB, two lanes, the default batch", limits::backlog()), times: 10;
    case("13", "SIGTERM in the middle of a batch", group::terminated()), times: 5, within_s: 15;
    case("14a", "Redis primary killed while its replica is 1.5 s behind; `wait_replicas = 0`",
        cluster::promoted(Waits::No)), times: 2, within_s: 20, promise: Forgets;
    case("14b", "the same with `wait_replicas = 1`; P from the dead node's return as a replica",
        cluster::promoted(Waits::ForOne)), times: 2, in_ci: Some(1), within_s: 20;
    case("15a", "planned failover (CLUSTER FAILOVER)", cluster::failed_over()), times: 5, in_ci: Some(1), within_s: 10;
    case("15b", "600 slots moved to another node, and back", cluster::resharded()), times: 2, within_s: 10;
    case("15c", "a node joins, takes 600 slots, gives them back and leaves", cluster::grown_and_shrunk()), within_s: 10;
    case("16a", "SCRIPT FLUSH on every node", script::flushed()), times: 20, within_s: 5;
    case("16b", "Redis answers LOADING for 3 s", script::answers(&script::LOADING)), times: 2, within_s: 15;
    case("16c", "BUSY for 3 s", script::answers(&script::BUSY)), times: 2, within_s: 15;
    case("16d", "OOM for 3 s", script::answers(&script::OUT_OF_MEMORY)), times: 2, within_s: 15;
    case("16e", "READONLY for 3 s", script::answers(&script::READ_ONLY)), times: 2, within_s: 15;
    case("16f", "NOREPLICAS for 3 s", script::answers(&script::NO_REPLICAS)), times: 2, within_s: 15;
    case("16g", "MISCONF for 3 s", script::answers(&script::CANNOT_SAVE)), times: 2, within_s: 15;
    case("16h", "NOPERM for 3 s: the ACL denies the script", script::answers(&script::DENIED)), times: 2, within_s: 15;
    case("17a", "reply lost after the script ran: the connection is cut", script::reply_lost()), times: 50, within_s: 5;
    case("17b", "reply later than `redis.timeout`", script::reply_late()), times: 10, within_s: 10;
    case("18a", "FLUSHALL on a node and its replica; `weir rebuild`", lost::lost(Tables::Kept, lost::flush)), times: 2;
    case("18b", "a node comes back empty; `weir rebuild`", lost::lost(Tables::Kept, lost::restart_empty)), times: 2;
    case("19", "start with an evicting Redis, another shard count, a foreign keyspace",
        script::refused()), times: 2, within_s: 5;
    case("20a", "two workers with clocks 4 minutes apart; one after the other is killed",
        clocks::minutes_apart()), times: 3, promise: Capped;
    case("20b", "a worker's clock is 1 h ahead or behind, suddenly or from its start, and is corrected",
        clocks::hour_off()), times: 4, within_s: 20;
    case("21", "S3: 403, 404, 503, cut, stalled; bitmaps truncated, empty, foreign, huge, altered",
        sources::segments()), within_s: 5;
    case("22", "invalid policies", sources::policy()), times: 2, within_s: 5;
    case("23", "every hostile record, and 1,000 garbled intents", inputs::hostile_records()), times: 5, within_s: 10;
    case("24a", "10,000 intents of one user in a batch", inputs::crowd(Common::User)), times: 2;
    case("24b", "one hot shard: 10,000 intents in a batch, all of its users", inputs::crowd(Common::Shard)), times: 2;
    case("24c", "one campaign for all: 10,000 intents in a batch", inputs::crowd(Common::Campaign)), times: 2;
    case("24d", "10,000 intents in a batch of one user without caps, whose history is full",
        inputs::crowd(Common::FullHistory)), times: 3;
    case("25a", "the broker's disk is full", limits::disk_full()), times: 2;
    case("25b", "the worker cannot allocate memory", limits::memory_limit()), times: 2;
    case("26", "HTTP: 10,000 connections, slow ones, a body of 10 GB, bad tokens",
        http::attacked()), times: 2, within_s: 10;
    case("27a", "all Redis nodes paused for 12 s, past `expires_at` and a cap's window", script::paused()), times: 2;
    case("27b", "Redis frozen for 12 s, past `expires_at` and a cap's window; it executes late calls",
        script::frozen()), times: 2;
    case("28", "unwritable records: 9 MiB in zstd, just under 1 MiB, 500 MiB in gzip",
        inputs::not_writable()), times: 2;
    case("29a", "primary of the name tables killed before it replicated new campaigns; others arrive at once",
        cluster::names_promoted()), times: 2, within_s: 20;
    case("29b", "FLUSHALL on the node of the name tables, and its replica; `weir rebuild`",
        lost::lost(Tables::Lost, lost::flush)), times: 2, within_s: 60;
    case("30a", "committed offsets deleted, as after a week without members", offsets::lost()), within_s: 60;
    case("30b", "intents topic recreated and published again while no worker runs",
        offsets::recreated(Meanwhile::Stopped));
    case("30c", "the same while a worker reads it", offsets::recreated(Meanwhile::Reads));
    case("31", "a quota limits the worker to 0.5 MB/s", brokers::throttled()), within_s: 60;
    case("32", "a rebuild frozen while it deletes, fills or waits; a second one finishes; the first wakes",
        lost::rebuild_frozen()), times: 3, within_s: 60;
    case("33", "a worker's clock is 8 days ahead, suddenly or from its start, and is corrected",
        clocks::days_ahead()), times: 4, within_s: 20;
    case("34a", "worker killed while deferred intents are moved and released, a quarter of all",
        wheel::killed()), times: 50, in_ci: Some(3), within_s: 60, promise: Capped;
    case("34b", "worker frozen with a release open, past its session, wakes beside its successor",
        wheel::zombie()), times: 2, within_s: 60, promise: Capped;
    case("34c", "broker restarted while a bucket drains",
        wheel::broker_restarted()), times: 2, within_s: 60, promise: Capped;
    case("34d", "a worker's clock is 4 minutes ahead: early by that; 1 h ahead: it releases nothing",
        wheel::clock_ahead()), times: 2, within_s: 60, promise: Capped;
    case("34e", "no worker for three days; then everything is overdue",
        wheel::three_days_off()), times: 2, within_s: 60, promise: Capped;
    case("35a", "1, then 4, then 2 workers that spend budgets, killed all the while",
        budgets::killed()), times: 50, in_ci: Some(3), within_s: 60;
    case("35b", "a worker that holds leases is frozen past their end and wakes beside its successor",
        budgets::frozen()), times: 4, within_s: 60;
    case("35c", "the node that counts a spent budget is emptied; weir rebuild counts it again",
        budgets::wiped()), times: 2, within_s: 60;
    case("35d", "all of Redis lost, and the records of a campaign with a total of its own; `weir rebuild --all`",
        budgets::all_lost()), within_s: 60;
    case("36a", "pressure: the log of activity and the members are deleted while users come in",
        pressure::log_lost()), times: 2, promise: Capped;
    case("36b", "pressure: one of two workers killed while users come in",
        pressure::member_killed()), times: 3, promise: Capped;
    case("36c", "pressure: the clock of one of two workers a minute ahead, then behind",
        pressure::clock_off()), times: 2, promise: Capped;
    case("36d", "pressure: a worker is frozen until the other has its places, and wakes while users come in",
        pressure::member_frozen()), times: 2, promise: Capped;
    // Two lanes decide a user's intents, so their verdicts may be in another order than the model's.
    case("37a", "a route's lag is not known for a minute: an ACL hides the group's offsets",
        delivery::lag_unknown()), within_s: 10, promise: Capped;
    // Those that return with `latest` pass what stands with their first record of each partition.
    case("37b", "a route's consumers stop, their group is deleted, and they return",
        delivery::group_deleted()), times: 2, within_s: 20, promise: Capped;
    case("37c", "of a route's service one of two instances dies, then the other; they return",
        delivery::service_dies()), within_s: 10, promise: Capped;
    case("37d", "worker frozen while intents wait, past its session, wakes beside its successor",
        delivery::zombie()), times: 2, promise: Capped;
    case("37e", "worker killed before produce, offsets, commit or its answer, in a transaction of what waited",
        delivery::killed()), times: 8, in_ci: Some(4), promise: Capped;
    case("37f", "worker killed in a transaction that has records of a waiting topic; one aborted at its end",
        delivery::aborted()), times: 3, promise: Capped;
    case("37g", "workers killed over a blast while the route is edited and removed and its consumers restart",
        delivery::killed_over_edits()), times: 50, promise: Capped;
    case("38", "a node comes back with a snapshot from before a total was spent; `weir rebuild --all`",
        budgets::old_snapshot()), times: 2, within_s: 60;
    case("39a", "partitions added, and written to at once; `auto.offset.reset = latest`",
        offsets::grown(Meanwhile::Reads)), times: 2;
    case("39b", "the same while no worker runs", offsets::grown(Meanwhile::Stopped)), times: 2;
    case("41a", "budgets: no replica answers for 25 s while intents come that spend a total; `wait_replicas = 1`",
        budgets::unreplicated()), within_s: 60;
    case("41b", "budgets: replies of Redis are lost again and again while budgets are spent",
        budgets::replies_lost()), times: 30, within_s: 60;
    case("42a", "the clock of the node that counts rolling budgets 1 h ahead, past their windows",
        budgets::clock_ahead(Whose::Primary)), times: 2, within_s: 60;
    case("42b", "the same for the clock of its replica, which takes over",
        budgets::clock_ahead(Whose::Heir)), times: 2, within_s: 60;
}
