//! The Lua scripts, and how a server comes to know them.

/// How a script is made of files in `lua/`: the first line with its flags, the prelude, and these files, in this order.
macro_rules! script {
    ($flags:literal, $($file:literal),+) => {
        concat!(
            "#!lua", $flags, "\n",
            include_str!("../../../lua/prelude.lua"),
            $(include_str!(concat!("../../../lua/", $file, ".lua"))),+
        )
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// `lua/admit.lua` and the files in `lua/admit/`
    Admit,
    Intern,
    Create,
    History,
    Refund,
    Rebuild,
    Guarded,
    Forget,
    Take,
    RestoreBudget,
    Sync,
    Register,
    Share,
    Permit,
    MakeRoom,
}

pub(super) const SCRIPTS: usize = 15;

impl Script {
    /// The source, beginning with `#!lua`: since Redis 7 that line makes the server refuse the call before it starts where it is
    /// out of memory, a replica, or short of replicas.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Admit => script!("", "admit", "admit/filters", "admit/slow_path", "admit/fast_path", "admit/write"),
            Self::Intern => script!("", "intern"),
            Self::Create => script!("", "create"),
            Self::History => script!(" flags=no-writes", "history"),
            Self::Refund => script!("", "refund"),
            Self::Rebuild => script!("", "rebuild"),
            Self::Forget => script!("", "forget"),
            Self::Guarded => script!("", "guarded"),
            Self::Take => script!("", "share/clock", "share/members", "take"),
            Self::RestoreBudget => script!("", "share/clock", "restore_budget"),
            Self::MakeRoom => script!("", "make_room"),
            Self::Sync => script!("", "share/clock", "share/members", "share/fair", "sync"),
            Self::Register => script!("", "share/clock", "services/registry", "register"),
            Self::Share => script!("", "share/clock", "share/members", "share/fair", "services/registry", "share"),
            Self::Permit => script!("", "share/clock", "share/members", "share/fair", "services/registry", "permit"),
        }
    }

    /// Whether it may write, so that its replies count only once the replicas have what was written.
    pub(super) fn writes(self) -> bool {
        match self {
            Self::Admit | Self::Intern | Self::Create | Self::Refund | Self::Rebuild | Self::Guarded | Self::Forget => {
                true
            }
            Self::Take | Self::RestoreBudget | Self::MakeRoom | Self::Sync => true,
            Self::Register | Self::Share | Self::Permit => true,
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
            Self::Take | Self::RestoreBudget | Self::MakeRoom | Self::Sync => false,
            Self::Register | Self::Share | Self::Permit => false,
        }
    }

    /// The source for servers before Redis 7, to whom the first line is a syntax error. They refuse the first
    /// write of a script that began out of memory, and our scripts write last, so nothing is written by halves.
    pub(super) fn plain_source(self) -> String {
        format!("--{}", self.source())
    }
}
