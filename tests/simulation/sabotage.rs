//! Bugs that are planted to test the simulation. The code under test knows nothing of them: they are
//! in the fakes, and in the script's text as fake nodes load it.

use std::{fs, path::Path};

use super::script::Script;

/// A planted bug, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The code as it is.
    None,
    /// Unanswered intents are approved instead of retried.
    SkipStoreRetry,
    /// A failed commit counts as done.
    SkipCommitRetry,
    /// Offsets are committed in one transaction, outputs in the next.
    CommitBeforeProduce,
    /// After a failed commit the source stays where it is.
    ForgetRewind,
    /// The script does not recognise a replay.
    CountReplayTwice,
    /// The script ignores the epoch.
    TrustWipedShard,
    /// Offsets are committed for partitions of another member.
    IgnoreMembership,
    /// Deferred writes count as recorded.
    ForgetOwed,
    /// An intent that waits for Redis is judged by the clock at the start of the outage.
    JudgeOnce,
    /// No record counts as read before, so gates come before replays.
    GatesBeforeReplays,
    /// A name's number is the length of its table, without replicas and comparisons.
    NumbersByLength,
    /// A history has no bound.
    NoBound,
    /// A rebuild writes without checking its mark.
    UnmarkedWrites,
    /// A due lane is told that deferred intents are due a minute earlier than they are.
    ReleasedEarly,
    /// Deferred intents are moved on in one transaction, and the offsets of those moved are committed in the next.
    MovedTwice,
    /// The ledger believes that a lease has ended, and tokens of it are spent.
    LeaseOutlived,
    /// Tokens of sends without an answer are given back, though they may have been recorded.
    UnclearGivenBack,
    /// Tokens are given back twice, once in another turn.
    GivenBackTwice,
    /// Tokens are asked for again, in another turn, where the answer is lost.
    GrantAskedAgain,
    /// A turn that is repeated is granted tokens again.
    TurnForgotten,
    /// Tokens are granted by the clock of a node, whatever the others show.
    NodeClockTrusted,
    /// Places are granted without regard to those that other instances hold.
    PlacesGrantedTwice,
    /// The log of activity believes that a member is gone, and its places are spent.
    PlaceOutlived,
    /// A failed turn at the log of activity counts as done.
    SkipTurnRetry,
    /// After a rebalance, the permits of the turn before count again.
    PermitsCountedTwice,
    /// Lanes of waiting intents read on whatever the route takes.
    ClosedRouteOutrun,
    /// Nobody reads intents that wait for a route which is not in the policy any more.
    RemovedRouteUnread,
    /// An intent whose delivery failed is decided again.
    RetryDecided,
    /// Shares of a service are granted without regard to those that other instances hold.
    SharesGrantedTwice,
    /// What a consumer group has committed by then counts as delivered when the route's rule changes.
    OffsetsCountedAnew,
    /// A route that is put back is not kept any more.
    PutBackUnkept,
    /// The reserved share is for all intents of its route.
    ReservedForAll,
    /// A total of a campaign that had to make room is not marked as spent.
    GoneTotalReopened,
    /// A rebuild does not count the budgets again that are there.
    SnapshotTrusted,
    /// With `latest`, partitions that are added are read from their ends.
    AddedReadFromEnd,
    /// A turn that is repeated writes nothing, so that its replica need not have the first one.
    TurnUntouched,
}

impl Sabotage {
    pub const ALL: [Self; 36] = [
        Self::SkipStoreRetry,
        Self::SkipCommitRetry,
        Self::CommitBeforeProduce,
        Self::ForgetRewind,
        Self::CountReplayTwice,
        Self::TrustWipedShard,
        Self::IgnoreMembership,
        Self::ForgetOwed,
        Self::JudgeOnce,
        Self::GatesBeforeReplays,
        Self::NumbersByLength,
        Self::NoBound,
        Self::UnmarkedWrites,
        Self::ReleasedEarly,
        Self::MovedTwice,
        Self::LeaseOutlived,
        Self::UnclearGivenBack,
        Self::GivenBackTwice,
        Self::GrantAskedAgain,
        Self::TurnForgotten,
        Self::NodeClockTrusted,
        Self::PlacesGrantedTwice,
        Self::PlaceOutlived,
        Self::SkipTurnRetry,
        Self::PermitsCountedTwice,
        Self::ClosedRouteOutrun,
        Self::RemovedRouteUnread,
        Self::RetryDecided,
        Self::SharesGrantedTwice,
        Self::OffsetsCountedAnew,
        Self::PutBackUnkept,
        Self::ReservedForAll,
        Self::GoneTotalReopened,
        Self::SnapshotTrusted,
        Self::AddedReadFromEnd,
        Self::TurnUntouched,
    ];

    /// A seed that shows it, found by `every_planted_bug_is_found_by_the_first_seeds`; `None` for a bug that takes hundreds of seeds, which
    /// only that test looks for.
    pub fn seed(self) -> Option<u64> {
        Some(match self {
            Self::None | Self::SkipTurnRetry => return None,
            Self::SkipCommitRetry
            | Self::CommitBeforeProduce
            | Self::CountReplayTwice
            | Self::JudgeOnce
            | Self::RetryDecided
            | Self::GoneTotalReopened
            | Self::AddedReadFromEnd => 0,
            Self::SkipStoreRetry | Self::SharesGrantedTwice => 1,
            Self::ForgetRewind
            | Self::NoBound
            | Self::ReleasedEarly
            | Self::MovedTwice
            | Self::RemovedRouteUnread
            | Self::PutBackUnkept => 2,
            Self::ClosedRouteOutrun => 3,
            Self::GivenBackTwice | Self::TurnForgotten | Self::PermitsCountedTwice => 4,
            Self::LeaseOutlived => 5,
            Self::GatesBeforeReplays | Self::ReservedForAll => 8,
            Self::ForgetOwed => 10,
            Self::NumbersByLength => 11,
            Self::NodeClockTrusted => 15,
            Self::TrustWipedShard => 18,
            Self::GrantAskedAgain => 24,
            Self::PlacesGrantedTwice | Self::OffsetsCountedAnew => 29,
            Self::TurnUntouched => 32,
            Self::IgnoreMembership => 70,
            Self::PlaceOutlived => 94,
            Self::UnclearGivenBack => 113,
            Self::SnapshotTrusted => 205,
            Self::UnmarkedWrites => 208,
        })
    }

    /// Whether it is a bug of names, which every run loses often then.
    pub fn is_of_names(self) -> bool {
        matches!(self, Self::NumbersByLength)
    }

    /// Whether it is a bug of rebuilds, in which runs freeze often then.
    pub fn is_of_rebuilds(self) -> bool {
        matches!(self, Self::UnmarkedWrites)
    }

    /// Whether it is a bug of budgets, of which every run needs one then.
    pub fn is_of_budgets(self) -> bool {
        [
            Self::LeaseOutlived,
            Self::UnclearGivenBack,
            Self::GivenBackTwice,
            Self::GrantAskedAgain,
            Self::TurnForgotten,
            Self::NodeClockTrusted,
            Self::GoneTotalReopened,
            Self::SnapshotTrusted,
            Self::TurnUntouched,
        ]
        .contains(&self)
    }

    /// Whether it is a bug of pressure, which every run has then.
    pub fn is_of_pressure(self) -> bool {
        matches!(self, Self::PlacesGrantedTwice | Self::PlaceOutlived | Self::SkipTurnRetry)
    }

    /// Whether it is a bug of routes, of which every run has one then.
    pub fn is_of_routes(self) -> bool {
        let is_other = matches!(self, Self::PermitsCountedTwice | Self::ClosedRouteOutrun | Self::ReservedForAll);
        is_other || self.is_of_edits()
    }

    /// Whether it is a bug of a route whose rule is edited, as it is in every run then, in which its intents wait.
    pub fn is_of_edits(self) -> bool {
        matches!(self, Self::RemovedRouteUnread | Self::OffsetsCountedAnew | Self::PutBackUnkept)
    }

    /// Whether it is a bug of deliveries that are tried again, which every run has then.
    pub fn is_of_retries(self) -> bool {
        matches!(self, Self::RetryDecided)
    }

    /// Whether it is a bug of services that ask, of which every run has one then.
    pub fn is_of_services(self) -> bool {
        matches!(self, Self::SharesGrantedTwice)
    }

    /// In which scripts what is replaced, and by what: the name of a script, or of a file that is in some.
    fn edits(self) -> &'static [(&'static str, &'static str, &'static str)] {
        // What a member gets that others hold: the one rule of all limits.
        const GROWS: &str = "math.min(part, math.max(held, total - others))";
        match self {
            Self::CountReplayTwice => &[("admit", "return REPLAYED, (before", "return nil, (before")],
            Self::TrustWipedShard => &[("prelude", "if found ~= expected then", "if false then")],
            Self::NumbersByLength => &[
                ("intern", "next = math.min(next + skipped, limit + 1)", "next = next"),
                (
                    "intern",
                    "if ARGV[4] ~= '0' and redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then",
                    "if false then",
                ),
            ],
            Self::NoBound => &[(
                "admit",
                "touch, _, max_entries = unpack(terms, 1, 6)",
                "touch, _, max_entries = unpack(terms, 1, 6); max_entries = 1000000",
            )],
            Self::PlacesGrantedTwice => &[("sync", GROWS, "total")],
            Self::TurnForgotten => &[("take", "turn_order(holders.own, run, turn)", "nil")],
            Self::NodeClockTrusted => &[("take", "if max(ahead, -ahead) > MAX_SKEW_MS then", "if false then")],
            Self::SharesGrantedTwice => &[("share", GROWS, "total")],
            Self::UnmarkedWrites => &[("guarded", "ours = ours and found[n] == ARGV[n + 1]", "ours = true")],
            Self::GoneTotalReopened => &[("make_room", "if #places > 0 then", "if false then")],
            Self::TurnUntouched => &[("take", "write_member(key, own_field, own)", "local _ = nil")],
            Self::None
            | Self::SkipStoreRetry
            | Self::SkipCommitRetry
            | Self::CommitBeforeProduce
            | Self::ForgetRewind
            | Self::IgnoreMembership
            | Self::ForgetOwed
            | Self::JudgeOnce
            | Self::GatesBeforeReplays
            | Self::ReleasedEarly
            | Self::MovedTwice
            | Self::LeaseOutlived
            | Self::UnclearGivenBack
            | Self::GivenBackTwice
            | Self::GrantAskedAgain
            | Self::PlaceOutlived
            | Self::SkipTurnRetry
            | Self::PermitsCountedTwice
            | Self::ClosedRouteOutrun
            | Self::RemovedRouteUnread
            | Self::RetryDecided
            | Self::OffsetsCountedAnew
            | Self::PutBackUnkept
            | Self::ReservedForAll
            | Self::SnapshotTrusted
            | Self::AddedReadFromEnd => &[],
        }
    }

    /// The script with the bug in it.
    pub fn edit(self, script: &Script) -> String {
        let edits = self.edits().iter().filter(|(name, ..)| script.is(name));
        edits.fold(script.source().to_owned(), |source, (_, sound, broken)| source.replace(sound, broken))
    }
}

#[test]
fn every_edit_is_of_one_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua");
    let read = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let (folders, mut paths): (Vec<_>, Vec<_>) = read(&folder).into_iter().partition(|path| path.is_dir());
    paths.extend(folders.iter().flat_map(|folder| read(folder)));
    let sources: Vec<String> = paths.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for (name, sound, _) in Sabotage::ALL.into_iter().flat_map(Sabotage::edits) {
        let places: usize = sources.iter().map(|source| source.matches(sound).count()).sum();
        assert_eq!(places, 1, "{sound}");
        assert!(sources.iter().any(|source| Script::new(source.clone()).is(name)), "there is no {name}");
    }
}
