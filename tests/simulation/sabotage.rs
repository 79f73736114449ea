//! Bugs that are planted to see whether the simulation finds them. The code under test knows nothing of them: they sit
//! in the ends that the simulation gives it, and in the text of the script that the fake nodes load.

/// A planted bug, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The code as it is.
    None,
    /// Sends that the store did not answer are let through instead of being asked for again.
    SkipStoreRetry,
    /// A commit that failed is taken for done.
    SkipCommitRetry,
    /// Offsets are committed in one transaction, outputs in the next.
    CommitBeforeProduce,
    /// After a failed commit the source stays where it is.
    ForgetRewind,
    /// The script does not know a replay when it sees one.
    CountReplayTwice,
    /// The script does not look at the epoch.
    TrustWipedShard,
    /// Offsets are committed for partitions that another member has by now.
    IgnoreMembership,
    /// Owed sends are taken for recorded.
    ForgetOwed,
    /// Offsets are committed without what waits before them, or is done behind them.
    ForgetParked,
    /// What waits for Redis is judged by the clock at the start of the outage.
    JudgeOnce,
    /// Nothing is taken for read before, so that the gates speak before replays are looked up.
    GatesBeforeReplays,
    /// Names get the number that their table's length gives, whether replicas have it or not, and nothing is compared.
    NumbersByLength,
    /// A history has no bound.
    NoBound,
    /// A rebuild writes without a look at its mark.
    UnmarkedWrites,
}

impl Sabotage {
    pub const ALL: [Self; 14] = [
        Self::SkipStoreRetry,
        Self::SkipCommitRetry,
        Self::CommitBeforeProduce,
        Self::ForgetRewind,
        Self::CountReplayTwice,
        Self::TrustWipedShard,
        Self::IgnoreMembership,
        Self::ForgetOwed,
        Self::ForgetParked,
        Self::JudgeOnce,
        Self::GatesBeforeReplays,
        Self::NumbersByLength,
        Self::NoBound,
        Self::UnmarkedWrites,
    ];

    /// The script with the bug in it.
    pub fn edit(self, source: &str) -> String {
        let edits: &[(&str, &str)] = match self {
            Self::CountReplayTwice => &[("return REPLAYED, times", "code = nil; return nil, times")],
            Self::TrustWipedShard => &[("if epoch ~= ARGV[1] then", "if false then")],
            Self::NumbersByLength => &[
                ("next = math.min(next + skipped, limit + 1)", "next = next"),
                ("if ARGV[4] ~= '0' and redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then", "if false then"),
            ],
            Self::NoBound => &[("local max_entries = head[6]", "local max_entries = 1000000")],
            Self::UnmarkedWrites => &[("ours = ours and found[n] == ARGV[n + 1]", "ours = true")],
            Self::None
            | Self::SkipStoreRetry
            | Self::SkipCommitRetry
            | Self::CommitBeforeProduce
            | Self::ForgetRewind
            | Self::IgnoreMembership
            | Self::ForgetOwed
            | Self::ForgetParked
            | Self::JudgeOnce
            | Self::GatesBeforeReplays => &[],
        };
        edits.iter().fold(source.to_owned(), |source, (sound, broken)| source.replace(sound, broken))
    }
}
