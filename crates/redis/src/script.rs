//! The Lua scripts, and how a server comes to know them.

use weir_core::limit::route::permits::RoutePermits;

use super::share::HasScript;

/// A line for each script: its name, in brackets the limit that it is all of, its flags, and the files of `lua/` that it is made of behind the
/// prelude, in this order.
macro_rules! scripts {
    ($($name:ident $(($limit:ty))? => script!($flags:literal, $($file:literal),+),)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Script { $($name,)+ }

        pub(super) const SCRIPTS: usize = [$(Script::$name),+].len();

        impl Script {
            /// The source, beginning with `#!lua`: since Redis 7 that line makes the server refuse the call before it starts where it is
            /// out of memory, a replica, or short of replicas.
            pub(super) const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => concat!(
                        "#!lua", $flags, "\n",
                        include_str!("../../../lua/prelude.lua"),
                        $(include_str!(concat!("../../../lua/", $file, ".lua"))),+
                    ),)+
                }
            }
        }

        $($(impl HasScript for $limit {
            const SCRIPT: Script = Script::$name;
        })?)+
    };
}

scripts! {
    Admit => script!("", "admit", "admit/filters", "admit/slow_path", "admit/fast_path", "admit/write"),
    Intern => script!("", "intern"),
    Create => script!("", "create"),
    History => script!(" flags=no-writes", "history"),
    Refund => script!("", "refund"),
    Rebuild => script!("", "rebuild"),
    Guarded => script!("", "guarded"),
    Forget => script!("", "forget"),
    Take => script!("", "share/clock", "share/members", "take"),
    RestoreBudget => script!("", "share/clock", "restore_budget"),
    Sync => script!("", "share/clock", "share/members", "share/fair", "sync"),
    Register => script!("", "share/clock", "services/registry", "register"),
    Share => script!("", "share/clock", "share/members", "share/fair", "services/registry", "share"),
    Permit(RoutePermits) => script!("", "share/clock", "share/members", "share/fair", "services/registry", "permit"),
    MakeRoom => script!("", "make_room"),
}

impl Script {
    /// Whether it may write, so that its replies count only once the replicas have what was written.
    pub(super) fn writes(self) -> bool {
        !self.source().starts_with("#!lua flags=no-writes\n")
    }

    /// Whether its last argument is when it is too late to run: what its caller has given up must not be decided later, by a
    /// clock of before. The others may run late: they say what is so at any time.
    pub(super) const fn has_latest(self) -> bool {
        matches!(self, Self::Admit)
    }

    /// The source for servers before Redis 7, to whom the first line is a syntax error. They refuse the first
    /// write of a script that began out of memory, and our scripts write last, so nothing is written by halves.
    pub(super) fn plain_source(self) -> String {
        format!("--{}", self.source())
    }
}
