//! The Lua scripts, and how a server comes to know them.

/// A script; one a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// `lua/admit.lua` and the files beside it that it names
    Admit,
    /// `lua/intern.lua`
    Intern,
    /// `lua/create.lua`
    Create,
    /// `lua/history.lua`
    History,
    /// `lua/refund.lua`
    Refund,
    /// `lua/rebuild.lua`
    Rebuild,
    /// `lua/guarded.lua`
    Guarded,
    /// `lua/forget.lua`
    Forget,
}

/// How many scripts there are.
pub(super) const SCRIPTS: usize = 8;

impl Script {
    /// The source as it is in `lua/`, beginning with `#!lua`: since Redis 7 that line makes the server refuse
    /// the call before it starts where it is out of memory, a replica, or short of replicas.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Admit => concat!(
                include_str!("../../../lua/admit.lua"),
                include_str!("../../../lua/admit/general.lua"),
                include_str!("../../../lua/admit/users.lua"),
            ),
            Self::Intern => include_str!("../../../lua/intern.lua"),
            Self::Create => include_str!("../../../lua/create.lua"),
            Self::History => include_str!("../../../lua/history.lua"),
            Self::Refund => include_str!("../../../lua/refund.lua"),
            Self::Rebuild => include_str!("../../../lua/rebuild.lua"),
            Self::Forget => include_str!("../../../lua/forget.lua"),
            Self::Guarded => include_str!("../../../lua/guarded.lua"),
        }
    }

    /// Whether it may write, so that its replies count only once the replicas have what was written.
    pub(super) fn writes(self) -> bool {
        match self {
            Self::Admit | Self::Intern | Self::Create | Self::Refund | Self::Rebuild | Self::Guarded | Self::Forget => {
                true
            }
            Self::History => false,
        }
    }

    /// Whether its last argument is when it is too late to run: what its caller has given up must not be decided later, by a
    /// clock of before. The others may run late: they say what is so at any time.
    pub(super) fn has_latest(self) -> bool {
        match self {
            Self::Admit => true,
            Self::Intern | Self::Create | Self::History | Self::Refund => false,
            Self::Rebuild | Self::Guarded | Self::Forget => false,
        }
    }

    /// The source for servers before Redis 7, to whom the first line is a syntax error. They refuse the first
    /// write of a script that began out of memory, and our scripts write last, so nothing is written by halves.
    pub(super) fn plain_source(self) -> String {
        format!("--{}", self.source())
    }
}
