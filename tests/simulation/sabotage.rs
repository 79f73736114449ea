//! Bugs that are planted to test the simulation. The code under test knows nothing of them: they are
//! in the fakes, and in the script's text as fake nodes load it.

use std::{fs, path::Path};

use super::script::Script;

/// What a bug is about: each run with it has that, or what shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Anything,
    /// They are lost often.
    Names,
    /// They freeze often.
    Rebuilds,
    Budgets,
    Pressure,
    Routes,
    /// A route whose rule is edited, and whose intents wait.
    Edits,
    Retries,
    Services,
    Growth,
}

macro_rules! planted {
    ($($(#[$what:meta])* $bug:ident: $about:ident, $seed:expr;)*) => {
        /// A planted bug, or none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Sabotage {
            /// The code as it is.
            None,
            $($(#[$what])* $bug,)*
        }

        impl Sabotage {
            pub const ALL: [Self; [$(Sabotage::$bug),*].len()] = [$(Self::$bug),*];

            /// A seed that shows it, found by `every_planted_bug_is_found_by_the_first_seeds`; `None` for a bug that takes hundreds of seeds,
            /// which only that test looks for.
            pub fn seed(self) -> Option<u64> {
                match self {
                    Self::None => None,
                    $(Self::$bug => $seed,)*
                }
            }

            fn about(self) -> About {
                match self {
                    Self::None => About::Anything,
                    $(Self::$bug => About::$about,)*
                }
            }
        }
    };
}

planted! {
    /// Unanswered intents are approved instead of retried.
    SkipStoreRetry: Anything, Some(1);
    /// A failed commit counts as done.
    SkipCommitRetry: Anything, Some(2);
    /// Offsets are committed in one transaction, outputs in the next.
    CommitBeforeProduce: Anything, Some(0);
    /// After a failed commit the source stays where it is.
    ForgetRewind: Anything, Some(2);
    /// The script does not recognise a replay.
    CountReplayTwice: Anything, Some(1);
    /// The script ignores the epoch.
    TrustWipedShard: Anything, Some(18);
    /// Offsets are committed for partitions of another member.
    IgnoreMembership: Anything, Some(64);
    /// Deferred writes count as recorded.
    ForgetOwed: Anything, Some(10);
    /// An intent that waits for Redis is judged by the clock at the start of the outage.
    JudgeOnce: Anything, Some(0);
    /// No record counts as read before, so gates come before replays.
    GatesBeforeReplays: Anything, Some(8);
    /// A name's number is the length of its table, without replicas and comparisons.
    NumbersByLength: Names, Some(11);
    /// A history has no bound.
    NoBound: Anything, Some(2);
    /// A rebuild writes without checking its mark.
    UnmarkedWrites: Rebuilds, Some(208);
    /// A due lane is told that deferred intents are due a minute earlier than they are.
    ReleasedEarly: Anything, Some(2);
    /// Deferred intents are moved on in one transaction, and the offsets of those moved are committed in the next.
    MovedTwice: Anything, Some(2);
    /// The ledger believes that a lease has ended, and tokens of it are spent.
    LeaseOutlived: Budgets, Some(5);
    /// Tokens of sends without an answer are given back, though they may have been recorded.
    UnclearGivenBack: Budgets, Some(28);
    /// Tokens are given back twice, once in another turn.
    GivenBackTwice: Budgets, Some(4);
    /// Tokens are asked for again, in another turn, where the answer is lost.
    GrantAskedAgain: Budgets, Some(24);
    /// A turn that is repeated is granted tokens again.
    TurnForgotten: Budgets, Some(2);
    /// Tokens are granted by the clock of a node, whatever the others show.
    NodeClockTrusted: Budgets, Some(4);
    /// Places are granted without regard to those that other instances hold.
    PlacesGrantedTwice: Pressure, Some(29);
    /// The log of activity believes that a member is gone, and its places are spent.
    PlaceOutlived: Pressure, Some(694);
    /// A failed turn at the log of activity counts as done.
    SkipTurnRetry: Pressure, None;
    /// After a rebalance, the permits of the turn before count again.
    PermitsCountedTwice: Routes, Some(4);
    /// Lanes of waiting intents read on whatever the route takes.
    ClosedRouteOutrun: Routes, Some(3);
    /// Nobody reads intents that wait for a route which is not in the policy any more.
    RemovedRouteUnread: Edits, Some(5);
    /// An intent whose delivery failed is decided again.
    RetryDecided: Retries, Some(0);
    /// Shares of a service are granted without regard to those that other instances hold.
    SharesGrantedTwice: Services, Some(1);
    /// What a consumer group has committed by then counts as delivered when the route's rule changes.
    OffsetsCountedAnew: Edits, Some(2);
    /// A route that is put back is not kept any more.
    PutBackUnkept: Edits, Some(2);
    /// The reserved share is for all intents of its route.
    ReservedForAll: Routes, Some(6);
    /// A total of a campaign that had to make room is not marked as spent.
    GoneTotalReopened: Budgets, Some(0);
    /// A rebuild does not count the budgets again that are there.
    SnapshotTrusted: Budgets, Some(293);
    /// With `latest`, partitions that are added are read from their ends.
    AddedReadFromEnd: Growth, Some(0);
    /// A turn that is repeated writes nothing, so that its replica need not have the first one.
    TurnUntouched: Budgets, Some(5);
}

/// What a member gets that others hold: the one rule of all limits.
const GROWS: &str = "math.min(part, math.max(held, total - others))";

/// In which scripts what is replaced for a bug, and by what: the name of a script, or of a file that is in some.
const EDITS: &[(Sabotage, &str, &str, &str)] = &[
    (Sabotage::CountReplayTwice, "admit", "return REPLAYED, (before", "return nil, (before"),
    (Sabotage::TrustWipedShard, "prelude", "if found ~= expected then", "if false then"),
    (Sabotage::NumbersByLength, "intern", "next = math.min(next + skipped, limit + 1)", "next = next"),
    (
        Sabotage::NumbersByLength,
        "intern",
        "if ARGV[4] ~= '0' and redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then",
        "if false then",
    ),
    (
        Sabotage::NoBound,
        "admit",
        "touch, _, max_entries = unpack(terms, 1, 6)",
        "touch, _, max_entries = unpack(terms, 1, 6); max_entries = 1000000",
    ),
    (Sabotage::PlacesGrantedTwice, "sync", GROWS, "total"),
    (Sabotage::PlaceOutlived, "sync", "ipairs(ended.others)", "ipairs({})"),
    (Sabotage::TurnForgotten, "take", "turn_order(holders.own, run, turn)", "nil"),
    (Sabotage::NodeClockTrusted, "take", "if max(ahead, -ahead) > MAX_SKEW_MS then", "if false then"),
    (Sabotage::SharesGrantedTwice, "share", GROWS, "total"),
    (Sabotage::UnmarkedWrites, "guarded", "ours = ours and found[n] == ARGV[n + 1]", "ours = true"),
    (Sabotage::GoneTotalReopened, "make_room", "if #places > 0 then", "if false then"),
    (Sabotage::TurnUntouched, "take", "write_member(key, own_field, own)", "local _ = nil"),
];

impl Sabotage {
    pub fn is_about(self, what: About) -> bool {
        self.about() == what
    }

    /// The script with the bug in it.
    pub fn edit(self, script: &Script) -> String {
        let edits = EDITS.iter().filter(|(bug, name, ..)| *bug == self && script.is(name));
        edits.fold(script.source().to_owned(), |source, (.., sound, broken)| source.replace(sound, broken))
    }
}

#[test]
fn every_edit_is_of_one_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua");
    let read = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let (folders, mut paths): (Vec<_>, Vec<_>) = read(&folder).into_iter().partition(|path| path.is_dir());
    paths.extend(folders.iter().flat_map(|folder| read(folder)));
    let sources: Vec<String> = paths.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for (_, name, sound, _) in EDITS {
        let places: usize = sources.iter().map(|source| source.matches(sound).count()).sum();
        assert_eq!(places, 1, "{sound}");
        assert!(sources.iter().any(|source| Script::new(source.clone()).is(name)), "there is no {name}");
    }
}
