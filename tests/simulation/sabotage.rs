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
}

impl Sabotage {
    pub const ALL: [Self; 9] = [
        Self::SkipStoreRetry,
        Self::SkipCommitRetry,
        Self::CommitBeforeProduce,
        Self::ForgetRewind,
        Self::CountReplayTwice,
        Self::TrustWipedShard,
        Self::IgnoreMembership,
        Self::ForgetOwed,
        Self::ForgetParked,
    ];

    /// The script with the bug in it.
    pub fn edit(self, source: &str) -> String {
        let (sound, broken) = match self {
            Self::CountReplayTwice => ("return REPLAYED, times", "code = nil; return nil, times"),
            Self::TrustWipedShard => ("if epoch ~= ARGV[1] then", "if false then"),
            Self::None
            | Self::SkipStoreRetry
            | Self::SkipCommitRetry
            | Self::CommitBeforeProduce
            | Self::ForgetRewind
            | Self::IgnoreMembership
            | Self::ForgetOwed
            | Self::ForgetParked => return source.to_owned(),
        };
        source.replace(sound, broken)
    }
}
